"""Everything that is made from the contract: JSON Schema, AsyncAPI, pages for people, NATS permissions."""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from inspect import cleandoc
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from schemas.catalog import CALLS, FACTS, STREAMS, Fact, durables
from schemas.codec import schema_path
from schemas.lifecycle import JOB_STATE_OF, LIVES
from schemas.permissions import all_permissions
from schemas.reasons import Code, fault_of
from schemas.spec import KINDS

HEADER: Final = "<!-- Made from schemas/ by `make schemas`. Do not edit. -->\n"
ASYNCAPI: Final = "3.0.0"


def rendered() -> dict[str, str]:
    """Return every generated file: path from the root of the house -> text."""
    files = {schema_path(fact.type): _json(fact.event.model_json_schema()) for fact in FACTS}
    files |= {f"schemas/json/spec/{kind.lower()}.json": _json(_spec_schema(model)) for kind, model in KINDS.items()}
    files |= {
        "schemas/asyncapi/triplane.json": _json(asyncapi()),
        "deploy/nats/permissions.json": _json(all_permissions()),
        "docs/events.md": HEADER + _events_page(),
        "docs/lifecycle.md": HEADER + _lifecycle_page(),
        "docs/reasons.md": HEADER + _reasons_page(),
    }
    return files


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _spec_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True, mode="validation")


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3 document: one channel a fact, one send by its owner, one receive a listener."""
    models = [(fact.event, "validation") for fact in FACTS]
    _, definitions = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    return {
        "asyncapi": ASYNCAPI,
        "info": {"title": "Triplane", "version": "1", "description": "Facts of the three planes over NATS JetStream."},
        "defaultContentType": "application/json",
        "channels": {fact.name: _channel(fact) for fact in FACTS},
        "operations": dict(_operations()),
        "components": {"schemas": definitions["$defs"]},
    }


def _channel(fact: Fact) -> dict[str, Any]:
    return {
        "address": fact.pattern,
        "description": cleandoc(fact.event.__doc__ or ""),
        "messages": {
            fact.event.__name__: {
                "name": fact.type,
                "payload": {"$ref": f"#/components/schemas/{fact.event.__name__}"},
            }
        },
        "bindings": {"nats": {"queue": fact.stream}},
    }


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for fact in FACTS:
        channel = {"$ref": f"#/channels/{fact.name}"}
        yield f"{fact.owner} says {fact.name}", {"action": "send", "channel": channel}
        for listener in (*fact.listeners, "audit"):
            yield f"{listener} hears {fact.name}", {"action": "receive", "channel": channel}


def _events_page() -> str:
    lines = [
        "# Facts",
        "",
        "Every fact, who says it and who hears it (audit hears all). Subject: type and scope.",
        "",
    ]
    lines += ["| fact | says | hears | what |", "|---|---|---|---|"]
    for fact in FACTS:
        what = cleandoc(fact.event.__doc__ or "").partition("\n")[0]
        lines.append(f"| `{fact.type}` | {fact.owner} | {', '.join(fact.listeners)} | {what} |")
    lines += ["", "## Streams", "", "| stream | subjects | kept |", "|---|---|---|"]
    lines += [f"| {row.name} | {', '.join(row.subjects)} | {row.max_age_seconds // 86_400} d |" for row in STREAMS]
    lines += ["", "## Durables", "", "| durable | stream | facts |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.stream} | {len(row.filter_subjects)} |" for row in durables()]
    lines += ["", "## Calls", "", "The only messages that are not facts: request and reply.", ""]
    lines += ["| subject | asks | answers | what |", "|---|---|---|---|"]
    for call in CALLS:
        what = cleandoc(call.question.__doc__ or "").partition("\n")[0]
        lines.append(f"| `{call.subject}` | {', '.join(call.asked_by)} | {call.answered_by} | {what} |")
    return "\n".join(lines) + "\n"


def _diagram(life: Mapping[Any, tuple[StrEnum, ...]]) -> list[str]:
    first = next(iter(life))
    lines = ["```mermaid", "stateDiagram-v2", f"  [*] --> {first.value}"]
    for before, afters in life.items():
        lines += [f"  {before.value} --> {after.value}" for after in afters] or [f"  {before.value} --> [*]"]
    return [*lines, "```", ""]


def _lifecycle_page() -> str:
    lines = ["# Lives", "", "Drawn from the tables in `schemas/lifecycle.py`.", ""]
    for name, life in LIVES.items():
        lines += [f"## {name.capitalize()}", "", *_diagram(life)]
    lines += ["## Which fact brings a job where", "", "| fact | state |", "|---|---|"]
    names = {fact.event: fact.name for fact in FACTS}
    lines += [f"| `{names[event]}` | {state.value} |" for event, state in JOB_STATE_OF.items()]
    lines += ["| `workload.job.finished` | its outcome |", "| `workload.job.evicted` | Queued, as the next attempt |"]
    return "\n".join(lines) + "\n"


def _reasons_page() -> str:
    lines = [
        "# Reason codes",
        "",
        "A user's failure uses up a retry; a platform's or policy's brings the job home.",
        "",
    ]
    lines += ["| code | fault |", "|---|---|"]
    lines += [f"| `{code.value}` | {fault_of(code).value} |" for code in Code]
    return "\n".join(lines) + "\n"
