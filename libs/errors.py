"""The kinds of errors: a refusal has a reason, the transient is retried, poison is set aside, a defect asserts."""


class TriplaneError(Exception):
    """The root of everything this product raises on purpose."""


class TransientError(TriplaneError):
    """Trying again later may work. The message is delivered again with a growing delay; a loop backs off."""


class ConflictError(TransientError):
    """Another transaction was faster: look again and decide again."""


class UnavailableError(TransientError):
    """A server or a service does not answer. What it would have said is unknown."""


class PoisonError(TriplaneError):
    """This message can never be handled. It goes to the DEAD stream, alone, with this text as the reason."""


class RefusedError(TriplaneError):
    """The other side understood and said no; ``reason`` is its stable code."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def says_cut(error: RuntimeError) -> bool:
    """Whether the event loop says this of a connection that the other side cut. uvloop says it of every write."""
    return "the handler is closed" in str(error)
