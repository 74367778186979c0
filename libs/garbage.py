"""When Python looks for cycles of garbage: seldom, since services make few and looking took a seventh of their time."""

import gc
from typing import Final

YOUNG: Final = 25_000  # objects more than there were before a look at the young ones: some megabytes
OLDER, OLDEST = 10, 10


def look_seldom() -> None:
    """Call it once a process, when all is imported: what is there now is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDEST)
