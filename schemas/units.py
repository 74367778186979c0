"""Units as users write them and as facts carry them: integers with the unit in the name."""

import re
from decimal import Decimal, InvalidOperation
from typing import Final

SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MICROS: Final = 1_000_000
BYTES_PER_UNIT: Final = {"Mi": 1, "Gi": 1_024, "Ti": 1_024 * 1_024}

_DURATION: Final = re.compile(r"(\d{1,9})([smhd]?)")
_MEMORY: Final = re.compile(r"(\d{1,18})(Mi|Gi|Ti)")
_MONEY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ([A-Z]{3})")
_CPU: Final = re.compile(r"(\d{1,18})(m?)")


MOST_CPUS: Final = 999_999
MOST_MEMORY_MIB: Final = 999_999_999


def parse_duration(text: str) -> int:
    """Return the seconds of ``30s``, ``15m``, ``2h``, ``3d``, or a bare ``90``. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a whole number and s, m, h or d, such as 30s or 2h")
    return int(match[1]) * SECONDS[match[2] or "s"]


def format_duration(seconds: int) -> str:
    """Return the shortest whole form of a duration: 5400 -> ``90m``."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % SECONDS[unit] == 0:
            return f"{seconds // SECONDS[unit]}{unit}"
    return f"{seconds}s"


def parse_memory(text: str) -> int:
    """Return the MiB of ``512Mi``, ``64Gi`` or ``1Ti``. Raises ValueError."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write a whole number and Mi, Gi or Ti, such as 64Gi")
    mebibytes = int(match[1]) * BYTES_PER_UNIT[match[2]]
    if mebibytes > MOST_MEMORY_MIB:
        raise ValueError(f"{text!r} is more than {MOST_MEMORY_MIB}Mi")
    return mebibytes


def parse_cpu(text: str) -> int:
    """Return the thousandths of a CPU of ``2`` or ``500m``. Raises ValueError."""
    match = _CPU.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of CPU; write whole CPUs such as 4, or thousandths such as 500m")
    milli = int(match[1]) * (1 if match[2] else 1_000)
    if milli > MOST_CPUS * 1_000:
        raise ValueError(f"{text!r} is more than {MOST_CPUS} CPUs")
    return milli


def parse_money(text: str) -> tuple[int, str]:
    """Return (millionths, currency) of ``2.50 USD``. Raises ValueError."""
    match = _MONEY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a price; write an amount and a currency, such as 2.50 USD")
    try:
        return int(Decimal(match[1]) * MICROS), match[2]
    except InvalidOperation as error:  # the pattern bounds the digits, so this is a digit Decimal does not know
        raise ValueError(f"{text!r} is not a price") from error


def format_money(micros: int, currency: str) -> str:
    """Return ``2.50 USD`` for 2,500,000 micros; cents at least, micros where they matter."""
    whole, rest = divmod(abs(micros), MICROS)
    digits = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micros < 0 else ''}{whole}.{digits} {currency}"
