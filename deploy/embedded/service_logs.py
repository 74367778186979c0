"""One log a service, also when many services share a process."""

import logging
from contextvars import ContextVar

from deploy.embedded.files import open_log
from deploy.embedded.state import StateFolder
from libs import log as logs

SUPERVISOR = "supervisor"
at_post: ContextVar[str] = ContextVar("at_post", default=SUPERVISOR)  # tasks inherit it from who starts them


class PostHandler(logging.Handler):
    """Writes each record to the log of the service whose task says it."""

    def __init__(self, folder: StateFolder) -> None:
        super().__init__()
        self._folder = folder
        self._handlers: dict[str, logging.Handler] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        self._handler(at_post.get()).handle(record)

    def close(self) -> None:
        """Close all logs."""
        for handler in self._handlers.values():
            handler.close()
        super().close()

    def _handler(self, post: str) -> logging.Handler:
        if post not in self._handlers:
            path = self._folder.log_file(post)
            open_log(path).close()  # made for our eyes only
            handler = logging.FileHandler(path)
            handler.setFormatter(logs.formatter("json", post))
            self._handlers[post] = handler
        return self._handlers[post]


def collect(folder: StateFolder, level: str = "INFO") -> None:
    """Send all log lines of this process to the logs of their services."""
    logging.basicConfig(level=level, handlers=[PostHandler(folder)], force=True)
