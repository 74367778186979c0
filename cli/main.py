"""The `triplane` command."""

import os
import sys
from typing import Annotated

import typer

from cli import escalations, exits, fleet, jobs, ledger, moves, people, stack, submit
from cli.context import Flags

HELP = """\
Submit GPU jobs, see why they wait, and run the fleet.

Exit codes: 0 done; 1 failed; 2 bad input; 3 not found; 4 denied, or a state directory that is refused; 5 the gateway
does not answer, or no stack is up; 6 conflict with what is there; 130 interrupted. `submit --wait` ends with the job's
own exit code.

The gateway is found by --address and --token, $TRIPLANE_ADDRESS and $TRIPLANE_TOKEN, the file $TRIPLANE_CONFIG,
the stack in $TRIPLANE_STATE, ~/.config/triplane/config.yaml, or the stack that `triplane up` started here last.
"""

commands = typer.Typer(
    name="triplane", help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)
for module in (submit, jobs, fleet, moves, escalations, ledger, people, stack):
    module.register(commands)


@commands.callback()
def flags(
    context: typer.Context,
    address: Annotated[str | None, typer.Option(help="The gateway, such as http://127.0.0.1:8080.")] = None,
    token: Annotated[str | None, typer.Option(help="A bearer token.", show_default=False)] = None,
) -> None:
    """Keep what every command needs."""
    context.obj = Flags(address, token)


@commands.command()
def version() -> None:
    """Show the version of this command."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        print(f"triplane {installed('triplane')}")
    except PackageNotFoundError:
        print("triplane (not installed)")


def app() -> None:
    """Run the command line; what a person can mend is said in a line or two, never as a traceback."""
    sys.argv[1:] = flags_first(sys.argv[1:])
    try:
        if sys.argv[1:] == ["version"]:
            version()  # the parser's own imports would take longer than all the rest
            return
        commands(prog_name="triplane")
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has seen enough
        sys.exit(exits.DONE)
    except Exception as error:
        if os.environ.get("TRIPLANE_DEBUG"):
            raise
        sys.exit(exits.explained(error))


def flags_first(words: list[str]) -> list[str]:
    """Return the words with --address and --token in front, wherever they stood before ``--``."""
    end = words.index("--") if "--" in words else len(words)
    front: list[str] = []
    rest: list[str] = []
    place = 0
    while place < end:
        word = words[place]
        takes = 2 if word in ("--address", "--token") else 1
        is_ours = takes == 2 or word.startswith(("--address=", "--token="))
        (front if is_ours else rest).extend(words[place : min(place + takes, end)])
        place += takes
    return [*front, *rest, *words[end:]]


if __name__ == "__main__":
    app()
