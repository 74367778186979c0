"""What can be wrong with a stack on one machine, each with its exit code, which means the same as of `triplane`."""

from typing import ClassVar


class StackError(Exception):
    """Something the person at the terminal can put right; the text says what is wrong and what to do. Exit code 1."""

    exit_code: ClassVar[int] = 1


class AlreadyUpError(StackError):
    """Another process runs the stack of this state directory. Exit code 6."""

    exit_code = 6


class InTheWayError(StackError):
    """Something is there that would be lost. Exit code 6."""

    exit_code = 6


class NoBackupError(StackError):
    """What is to be restored is no backup, or not whole. Exit code 2."""

    exit_code = 2


class BadDocumentError(StackError):
    """Documents that are broken, or that the stack refuses. Exit code 2."""

    exit_code = 2


class StateRefusedError(StackError):
    """The state directory is of a newer format, of another user, or unreadable. Exit code 4."""

    exit_code = 4


class NotUpError(StackError):
    """No stack runs on this state directory. Exit code 5."""

    exit_code = 5
