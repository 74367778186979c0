"""How the command ends: documented exit codes, and errors as a line and its remedy."""

import sys
from typing import Final

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
NOT_FOUND: Final = 3
DENIED: Final = 4
UNREACHABLE: Final = 5
CONFLICT: Final = 6
INTERRUPTED: Final = 130
_BY_STATUS: Final = {401: DENIED, 403: DENIED, 404: NOT_FOUND, 409: CONFLICT}
_BAD_INPUT: Final = range(400, 500)


class CommandError(Exception):
    """Ends the command with this message, remedy and exit code."""

    def __init__(self, code: int, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy


def explained(error: Exception) -> int:
    """Tell a person what went wrong and how to mend it; return the exit code."""
    from libs.client.errors import ClientError

    if isinstance(error, CommandError):
        say(error.message, error.remedy)
        return error.code
    if isinstance(error, ClientError):
        say(error.message, error.remedy)
        return code_of(error)
    if isinstance(error, UnicodeEncodeError):
        say(f"{error.object[error.start : error.end]!a} is no text", "write arguments in UTF-8")
        return BAD_INPUT
    if isinstance(error, OSError):
        say(f"{error.filename or 'what there is to say'} cannot be read or written: {error.strerror}")
        return FAILED
    say(f"a defect: {type(error).__name__}: {error}", "run it again with TRIPLANE_DEBUG=1 for the traceback")
    return FAILED


def code_of(error: Exception) -> int:
    """Return the exit code of a client's error."""
    from libs.client.errors import ArgumentError, ConfigError, ProblemError, UnreachableError

    if isinstance(error, ProblemError):
        status = error.problem.status
        return _BY_STATUS.get(status, BAD_INPUT if status in _BAD_INPUT else FAILED)
    if isinstance(error, (ArgumentError, ConfigError)):
        return BAD_INPUT
    return UNREACHABLE if isinstance(error, UnreachableError) else FAILED


def say(message: str, remedy: str = "") -> None:
    """Print an error and its remedy to stderr."""
    print(f"triplane: {message}", file=sys.stderr)
    if remedy:
        print(f"  → {remedy}", file=sys.stderr)
