"""What can go wrong between a client and the gateway, each with what mends it."""

from libs.client.models import Problem
from libs.errors import TriplaneError


class ClientError(TriplaneError):
    """The root: a message for people and a remedy."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class ConfigError(ClientError):
    """Nobody said where the gateway is, or the file that should is broken."""


class ArgumentError(ClientError):
    """What was given can not be asked about: nothing is sent."""


class UnreachableError(ClientError):
    """The gateway does not answer, or says that it can not now. Asking again later may work."""


class ProblemError(ClientError):
    """The gateway understood and said no."""

    def __init__(self, problem: Problem) -> None:
        field = f"{problem.field}: " if problem.field else ""
        super().__init__(f"{field}{problem.detail}", problem.remedy or "")
        self.problem = problem
