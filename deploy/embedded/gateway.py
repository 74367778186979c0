"""Speaking to the stack's own gateway."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import httpx

from deploy.embedded.failures import StackError
from libs.client import models as m

ANSWER_SECONDS = 10.0


class Gateway:
    """One user of a gateway. Every call raises StackError with the gateway's own words when it is refused."""

    def __init__(self, address: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.AsyncClient(base_url=address, headers=headers, timeout=ANSWER_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def declare(self, text: str) -> list[m.DocumentResult]:
        """Hand in documents; all must be taken."""
        answer = m.DocumentsAnswer.model_validate_json(await self._ask("POST", "/v1/documents", content=text))
        faults = [f"{result.name}: {fault}" for result in answer.results for fault in result.faults]
        if faults:
            raise StackError("\n".join(faults))
        return list(answer.results)

    async def add_tenant(self, name: str) -> str:
        """Make a tenant, and return a token for its jobs."""
        await self._ask("POST", "/v1/tenants", json={"name": name})
        wish = {"name": f"{name}-demo", "role": "submitter", "tenant": name}
        return m.CreatedToken.model_validate_json(await self._ask("POST", "/v1/tokens", json=wish)).secret

    async def jobs(self) -> list[m.Job]:
        """Return all jobs, oldest first; at most a thousand."""
        page = m.JobPage.model_validate_json(await self._ask("GET", "/v1/jobs", params={"limit": 1_000}))
        return list(reversed(page.items))

    async def nodes(self) -> list[m.Node]:
        """Return the nodes by name; at most a thousand."""
        page = m.NodePage.model_validate_json(await self._ask("GET", "/v1/nodes", params={"limit": 1_000}))
        return list(page.items)

    async def bill(self) -> list[m.BillLine]:
        """Return who owes what."""
        lines = await self._ask("GET", "/v1/bill")
        return [m.BillLine.model_validate(line) for line in httpx.Response(200, content=lines).json()]

    async def explain(self, job: str) -> m.Explanation:
        """Return why a job is where it is, with its history."""
        return m.Explanation.model_validate_json(await self._ask("GET", f"/v1/jobs/{job}/explain"))

    async def cancel(self, job: str) -> None:
        """Wish a job away."""
        await self._ask("DELETE", f"/v1/jobs/{job}")

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        content: str | None = None,
        json: Mapping[str, str] | None = None,
        params: Mapping[str, int] | None = None,
    ) -> bytes:
        try:
            answer = await self._http.request(method, path, content=content, json=json, params=params)
        except httpx.HTTPError as error:
            raise StackError(f"The gateway does not answer: {error!r}") from error
        if answer.is_error:
            raise StackError(f"The gateway refused {method} {path}: {answer.text}")
        return answer.content
