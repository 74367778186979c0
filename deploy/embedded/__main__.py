"""`python -m deploy.embedded`: the stack on one machine, from the command line.

Exit codes: 0 done; 1 failed (the text says why); 2 wrong usage, or a document that is broken or refused; 4 the
state directory is refused; 5 no stack is up there; 6 a stack is already up there.
"""

import asyncio
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.output import Form, FormOption, plain
from deploy.embedded.failures import NotUpError, StackError
from deploy.embedded.state import default_root, is_state, open_state
from libs.errors import TriplaneError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=__doc__
)


class Trace(StrEnum):
    """Public traces of real fleets."""

    OPENB = "openb"


WIDTH = 110  # of what is not printed on a terminal

State = Annotated[
    Path,
    typer.Option("--state", default_factory=default_root, help="The directory that holds all data, secrets and logs."),
]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Listen here instead of on a random port.")]


@app.command()
def up(
    *,
    state: State,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready and leave it running.")] = False,
    fleet: Annotated[Path | None, typer.Option(help="A document with clusters; kept for the next starts.")] = None,
    processes: Annotated[bool, typer.Option("--processes", help="Each service in a process of its own.")] = False,
    servers_only: Annotated[bool, typer.Option("--servers-only", help="NATS, Redis and Postgres alone.")] = False,
    port_gateway: Port = None,
    port_nats: Port = None,
    port_redis: Port = None,
    port_postgres: Port = None,
) -> None:
    """Start the stack and stay until Ctrl-C."""
    if fleet is not None and servers_only:
        raise typer.BadParameter("--fleet goes without --servers-only, where nobody could take it")
    named = {"gateway": port_gateway, "nats": port_nats, "redis": port_redis, "postgres": port_postgres}
    fixed = {name: port for name, port in named.items() if port is not None}
    if detach:
        from deploy.embedded import detached

        print(detached.start(open_state(state), [word for word in sys.argv[2:] if word != "--detach"]))
        return
    from deploy.embedded.settings import Settings
    from deploy.embedded.up import Wish, run

    run(Wish(state, fixed, fleet, processes, servers_only), Settings(), lambda text: print(text, flush=True))


@app.command()
def down(*, state: State) -> None:
    """Stop the stack, and whatever a killed one left behind. Jobs that run go on; the next `up` takes them up."""
    from deploy.embedded.down import down as take_down
    from deploy.embedded.runtime import going_on

    if not is_state(state):
        print("Nothing was up.")
        return
    folder = open_state(state)
    stopped = asyncio.run(take_down(folder))
    print(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing was up.")
    if left := going_on(folder):
        print(left)


@app.command()
def status(*, state: State, output: FormOption = Form.TABLE) -> None:
    """Show what runs. Exit code 5 when no stack is up."""
    from deploy.embedded import status as states

    if not is_state(state):
        raise NotUpError(f"{state} is no state directory. Start a stack with `triplane up`.")
    seen = asyncio.run(states.look(open_state(state)))
    states.show(seen) if output is Form.TABLE else plain(output, seen.as_json())
    if not seen.is_up:
        raise NotUpError(f"No stack is up on {seen.root}. Start one with `triplane up`.")


@app.command()
def doctor(*, state: State, output: FormOption = Form.TABLE) -> None:
    """Check whether this machine can run the stack; each finding comes with its remedy. Exit code 1 when one cannot."""
    from deploy.embedded import doctor as doctors

    findings = doctors.examine(state)
    doctors.show(findings) if output is Form.TABLE else plain(output, [finding.as_json() for finding in findings])
    if not all(finding.is_well for finding in findings):
        raise typer.Exit(1)


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")], *, state: State
) -> None:
    """Write ledger, credentials and fleet document into one file; the stack may run or be stopped.

    The file holds all secrets of the stack: mode 0600.
    """
    from deploy.embedded import backup as backups

    if not is_state(state):
        raise NotUpError(f"{state} is no state directory. Nothing to back up.")
    print(asyncio.run(backups.back_up(open_state(state), file.absolute())))


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `triplane backup` wrote.")],
    *,
    state: State,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move a ledger that is there aside, into the state directory.")
    ] = False,
) -> None:
    """Make the stack of a backup; it is not started, and grants nothing until `triplane lift-stop`.

    Exit code 6 when a stack runs there, 4 when the backup is of a newer format, 2 when the file is no backup.
    """
    from deploy.embedded import backup as backups

    print(asyncio.run(backups.restore(open_state(state), file.absolute(), replace=replace)))


@app.command()
def lift_stop(
    *,
    by: Annotated[str, typer.Option(help="Your name; it is kept beside the stop.")],
    unheard: Annotated[
        bool, typer.Option("--unheard", help="Also when nodes have not reported since: nothing runs on them.")
    ] = False,
    state: State,
) -> None:
    """Let grants go on after a restore, or after a lease stood above the ledger. Look at the nodes first."""
    from deploy.embedded import backup as backups

    if not is_state(state):
        raise NotUpError(f"{state} is no state directory.")
    print(asyncio.run(backups.lift(open_state(state), by, unheard=unheard)))


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="Where the full lists of the trace are. Without it: the sample carried here.")
    ] = None,
    *,
    trace: Annotated[
        Trace | None,
        typer.Option(help="Play this public trace on a pretended fleet instead of the small fleet's jobs."),
    ] = None,
    variant: Annotated[str, typer.Option("--list", help="Which list of the trace's pods.")] = "default",
    minutes: Annotated[float, typer.Option(min=0.01, help="How long the whole trace takes.")] = 3.0,
    stretch: Annotated[
        float, typer.Option(min=0.0, help="Let runs of the trace last so many times their share of that.")
    ] = 1.0,
    processes: Annotated[
        bool, typer.Option("--processes", help="Of the trace: each service in a process of its own.")
    ] = False,
    picture: Annotated[Path, typer.Option(help="Where the timeline of the devices is drawn.")] = Path(
        "triplane-demo.svg"
    ),
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep its state and logs, as it does when something was wrong.")
    ] = False,
) -> None:
    """Start a stack, run three tenants' jobs or a public trace through it, check what was promised, stop it.

    Exit code 1: not well.
    """
    from rich.console import Console

    from deploy.embedded.demo import fair
    from deploy.embedded.demo.openb import show

    if folder is not None and trace is None:
        raise typer.BadParameter("a FOLDER goes with --trace openb")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its stack goes with it
    terminal = Console()
    console = terminal if terminal.is_terminal else Console(width=WIDTH)
    if trace is None:
        is_well = fair.run(console, picture, keep=keep)
    else:
        is_well = show.run(console, show.Wanted(folder, variant, minutes * 60, stretch, picture, keep, processes))
    if not is_well:
        raise typer.Exit(1)


def main() -> None:
    """Run a command; errors a person can mend are one line on stderr, not a traceback."""
    try:
        app(prog_name="triplane")
    except (StackError, TriplaneError) as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, StackError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
