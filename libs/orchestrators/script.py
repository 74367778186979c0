"""What a pretended run does, read from the command a user would write."""

from dataclasses import dataclass

from schemas.calls import LaunchOrder

SECONDS, CODE = "PRETEND_SECONDS", "PRETEND_EXIT_CODE"


@dataclass(frozen=True, slots=True)
class Script:
    """How long a run takes to ask for leave, to open its devices then, and to end; codes by the place on the node.

    ``deaf``: it does not hear SIGTERM and ends only by SIGKILL.
    """

    seconds: float = 0.0
    exit_codes: tuple[int, ...] = ()
    start_seconds: float = 0.0
    open_seconds: float = 0.0
    deaf: bool = False

    def code(self, place: int) -> int:
        """Return the exit code of the replica at a place; 0 where none was written."""
        return self.exit_codes[place] if place < len(self.exit_codes) else 0


def script_of(order: LaunchOrder) -> Script:
    """Return what the command says: ``sleep 5``, ``sleep infinity``, ``exit 3``, ``false``; anything else ends at once.

    PRETEND_SECONDS and PRETEND_EXIT_CODE in the job's environment say the same for any command.
    """
    command, env = order.work.command, order.work.env
    seconds, code = 0.0, 0
    match command:
        case ("sleep", text, *_):
            seconds = _number(text)
        case ("false", *_):
            code = 1
        case ("exit", text, *_):
            code = _code(text)
        case _:
            pass
    seconds = _number(env[SECONDS]) if SECONDS in env else seconds
    code = _code(env[CODE]) if CODE in env else code
    return Script(seconds=seconds, exit_codes=(code,) * len(order.replicas))


def _number(text: str) -> float:
    """Return a number of seconds; what is none counts as 0, as a shell's arithmetic has it."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if number > 0 else 0.0  # not for what is no number at all, either


def _code(text: str) -> int:
    return int(min(255.0, _number(text)))
