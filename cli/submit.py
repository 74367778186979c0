"""submit and apply: documents from files, folders and stdin, or a job from a command."""

import json
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import exits
from cli.context import client
from cli.exits import CommandError
from cli.output import Form, FormOption, data

if TYPE_CHECKING:
    from libs.client.client import Client
    from libs.client.models import DocumentResult

_ENDINGS: Final = (".yaml", ".yml", ".json")
_LOOK_SECONDS: Final = 0.5
_SEPARATOR: Final = b"\n---\n"


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text, and the line on which each of its documents begins."""

    name: str
    text: bytes
    lines: tuple[int, ...]


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.command(name="submit")(submit)
    commands.command(name="apply")(apply)


def submit(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="FILE... | -- COMMAND...", help="Files, folders, - (stdin); or a command.")
    ],
    *,
    gpus: Annotated[int | None, typer.Option(min=1, help="Run the command on so many GPUs (of each replica).")] = None,
    queue: Annotated[str, typer.Option(help="The queue of the command's job.")] = "default",
    name: Annotated[str | None, typer.Option(help="The name of the command's job.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant of the command's job.")] = None,
    replicas: Annotated[int, typer.Option(min=1, help="How many replicas start together.")] = 1,
    gpu_class: Annotated[list[str] | None, typer.Option("--class", help="A GPU class; the best first.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Such as 30m or 2h; a bare number is seconds.")] = None,
    recovery_timeout: Annotated[
        str | None, typer.Option(help="How long what it had is held for it after it lost a node, such as 10m.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a failure is tried again.")] = 0,
    workdir: Annotated[str | None, typer.Option(help="Where the command runs.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the command.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with the job's exit code.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Make a job that has ended anew.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Submit jobs: `submit FILE...`, or `submit --gpus N -- COMMAND`.

    The same job again, while it lives, is the same job. A job that has ended is made anew with --again.
    """
    if gpus is not None:
        spec = {
            "queue": queue,
            "classes": gpu_class or [],
            "replicas": replicas,
            "devicesPerReplica": gpus,
            "timeLimit": time_limit,
            "recoveryTimeout": recovery_timeout,
            "retries": retries,
            "workdir": workdir,
            "env": _environment(env or []),
            "command": _command(words),
        }
        sources = [_of_command(spec, _name_of(words[0]) if name is None else name, tenant)]
    else:
        sources = list(_sources(words))
    with client(context) as asking:
        results = _send(asking, sources, dry_run=dry_run, again=again)
        _tell(output, sources, results, "would be " if dry_run else "")
        code = _code_of(sources, results)
        if code == exits.DONE and wait and not dry_run:
            code = _wait(asking, [r.id for r in results if r.kind == "Job" and r.id is not None])
    if code != exits.DONE:
        raise typer.Exit(code)


def apply(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Files, folders, or - for stdin.")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Declare queues, classes and clusters (and jobs) from files, folders or stdin."""
    sources = list(_sources(files))
    with client(context) as asking:
        results = _send(asking, sources, dry_run=dry_run, again=False)
    _tell(output, sources, results, "would be " if dry_run else "")
    if (code := _code_of(sources, results)) != exits.DONE:
        raise typer.Exit(code)


def _of_command(spec: dict[str, Any], name: str, tenant: str | None) -> Source:
    document = {
        "apiVersion": "triplane/v1",
        "kind": "Job",
        "metadata": {"name": name, **({"tenant": tenant} if tenant is not None else {})},
        "spec": {key: value for key, value in spec.items() if value not in (None, [], {})},
    }
    return Source("command line", json.dumps(document).encode(), (1,))


def _name_of(command: str) -> str:
    stem = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in Path(command).stem.lower())
    return f"{stem.strip('-')[:40].strip('-') or 'job'}-{secrets.token_hex(3)}"


def _command(words: list[str]) -> list[str]:
    """Return the words if all of them came behind ``--``. Raises CommandError: a file is no command by accident."""
    behind = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    if words != behind:
        remedy = "write --gpus N -- COMMAND, or files without --gpus"
        raise CommandError(exits.BAD_INPUT, f"{words[0]} is not behind --, where the command of --gpus is", remedy)
    return words


def _environment(pairs: Iterable[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandError(exits.BAD_INPUT, f"--env {pair} has no value", "write NAME=VALUE")
        found[name] = value
    return found


def _sources(names: Iterable[str]) -> Iterator[Source]:
    for name in names:
        if name == "-":
            yield _source("stdin", _limited(sys.stdin.buffer.read(_max_bytes() + 1), "stdin"))
            continue
        path = Path(name)
        if path.is_dir():
            yield from _folder(path)
        else:
            yield _source(name, _read(path))


def _folder(path: Path) -> Iterator[Source]:
    files = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS and file.is_file())
    if not files:
        raise CommandError(exits.BAD_INPUT, f"{path} holds no .yaml, .yml or .json file", "name a file")
    yield from (_source(str(file), _read(file)) for file in files)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _max_bytes():
            return _limited(b"", str(path), size=path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        remedy = "name a file that is there; a command comes after -- and needs --gpus"
        raise CommandError(exits.BAD_INPUT, f"{path}: {error.strerror}", remedy) from error


def _max_bytes() -> int:
    from schemas.spec.text import MAX_TEXT_BYTES

    return MAX_TEXT_BYTES


def _limited(text: bytes, name: str, *, size: int | None = None) -> bytes:
    found = size if size is not None else len(text)
    if found > _max_bytes():
        message = f"{name} is too large: more than {_max_bytes()} bytes"
        raise CommandError(exits.BAD_INPUT, message, "divide it into smaller files")
    return text


def _source(name: str, text: bytes) -> Source:
    from schemas.spec.text import TextRefusedError, pieces

    try:
        return Source(name, text, tuple(piece.line for piece in pieces(text)))
    except TextRefusedError as error:
        raise CommandError(exits.BAD_INPUT, f"{name}: {error.message}", error.remedy) from error


def _send(asking: "Client", sources: Sequence[Source], *, dry_run: bool, again: bool) -> "list[DocumentResult]":
    """Send what fits in one request together, so that files may refer to each other. Results as in the files."""
    from libs.client import calls

    results: list[DocumentResult] = []
    for batch in _batches(sources):
        text = _SEPARATOR.join(source.text for source in batch)
        answer = asking.ask(calls.submit(text, dry_run=dry_run, again=again))
        results += answer.results
    if not results:
        raise CommandError(exits.BAD_INPUT, "there is no document in what was given", "write one, or name other files")
    return results


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    from schemas.spec.text import MAX_DOCUMENTS, MAX_TEXT_BYTES

    batch: list[Source] = []
    size = count = 0
    for source in sources:
        size += len(source.text) + len(_SEPARATOR)
        count += len(source.lines)
        if batch and (size > MAX_TEXT_BYTES or count > MAX_DOCUMENTS):
            yield batch
            batch, size, count = [], len(source.text), len(source.lines)
        batch.append(source)
    yield batch


def _tell(output: Form, sources: Sequence[Source], results: "Sequence[DocumentResult]", mood: str) -> None:
    for source in sources:
        if not source.lines:
            exits.say(f"there is no document in {source.name}", "write one, or leave the file out")
    if output is not Form.TABLE:
        data(output, list(results))
        return
    places = [(source.name, line) for source in sources for line in source.lines]
    for (name, line), result in zip(places, results, strict=True):
        what = f"{result.kind or 'document'} {result.name or ''}".strip()
        if result.outcome != "error":
            print(f"{mood}{result.outcome:<9} {what} ({result.id})")
        for fault in result.faults:
            at = line if fault.line is None else line + fault.line - result.line
            print(f"{'error':<9} {what} in {name}, line {at}: {fault}", file=sys.stderr)


def _code_of(sources: Sequence[Source], results: "Sequence[DocumentResult]") -> int:
    """Return the exit code: bad input before a conflict with what is there (which names the other's id)."""
    bad = [result for result in results if result.outcome == "error"]
    if not all(source.lines for source in sources):
        return exits.BAD_INPUT
    if not bad:
        return exits.DONE
    return exits.CONFLICT if all(result.id is not None for result in bad) else exits.BAD_INPUT


def _wait(asking: "Client", jobs: Sequence[str]) -> int:
    """Wait for the jobs' ends; return the exit code of the first that did not succeed."""
    codes = [_end_of(asking, job) for job in jobs]
    return next((code for code in codes if code), exits.DONE)


def _end_of(asking: "Client", job: str) -> int:
    from libs.client import calls
    from libs.client.errors import UnreachableError

    shown = ""
    while True:
        try:
            seen = asking.ask(calls.job(job))
        except UnreachableError as error:
            shown = _changed(shown, f"waiting for the gateway: {error.message}")
        else:
            why = f" ({seen.reason})" if seen.reason else ""
            shown = _changed(shown, f"{seen.name}: {seen.state}{why}")
            if seen.ended:
                return exits.DONE if seen.state == "Succeeded" else seen.exit_code or exits.FAILED
        time.sleep(_LOOK_SECONDS)


def _changed(before: str, now: str) -> str:
    if now != before:
        print(now, file=sys.stderr)
    return now
