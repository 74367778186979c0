"""Structured logs: a constant text and fields beside it, one JSON object a line. Never a secret."""

import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal

import orjson

_FIELDS: Final = "triplane_fields"
_FIELD_CHARACTERS: Final = 2_000  # one careless field must not fill the disk


class Log:
    """A logger whose text is constant and whose data are fields: ``log.info("committed", job=job, n=2)``."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, text: str, **fields: object) -> None:
        """Say what only a developer wants to know."""
        self._write(logging.DEBUG, text, fields, None)

    def info(self, text: str, **fields: object) -> None:
        """Say what happened as expected."""
        self._write(logging.INFO, text, fields, None)

    def warning(self, text: str, *, error: BaseException | None = None, **fields: object) -> None:
        """Say what went wrong and will be tried again."""
        self._write(logging.WARNING, text, fields, error)

    def error(self, text: str, *, error: BaseException | None = None, **fields: object) -> None:
        """Say what went wrong and needs a person."""
        self._write(logging.ERROR, text, fields, error)

    def _write(self, level: int, text: str, fields: dict[str, object], error: BaseException | None) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", text, exc_info=error, extra={_FIELDS: fields}, stacklevel=3)


def get_logger(name: str) -> Log:
    """Return the structured logger of a module."""
    return Log(logging.getLogger(name))


def setup(level: str, form: Literal["json", "text"], service: str) -> None:
    """Send every log line of this process to stderr, in one form, with the service's name."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form, service))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def formatter(form: Literal["json", "text"], service: str) -> logging.Formatter:
    """Return what writes the lines of one service, for a process that holds several."""
    return _Json(service) if form == "json" else _Text(service)


class _Json(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line = _line(self._service, record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class _Text(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line = _line(self._service, record)
        head = [str(line.pop(name)) for name in ("time", "level", "service", "text")]
        fields = [f"{name}={value}" for name, value in line.items() if name != "logger"]
        trace = [self.formatException(record.exc_info)] if record.exc_info else []
        return "\n".join([" ".join(head + fields), *trace])


def _line(service: str, record: logging.LogRecord) -> dict[str, object]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: dict[str, object] = {"time": time, "level": record.levelname, "service": service, "logger": record.name}
    line["text"] = record.getMessage()
    fields: dict[str, object] = getattr(record, _FIELDS, {})
    return line | {name: _bounded(value) for name, value in fields.items() if name not in line}


def _bounded(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _FIELD_CHARACTERS else text[:_FIELD_CHARACTERS] + "…"
