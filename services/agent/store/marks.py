"""Which destinations keep off this node, and by whose word."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from schemas.ids import ClusterId
from schemas.moves import MarkOrder
from services.agent.shim.files import read, write

_ORDERS = TypeAdapter(dict[ClusterId, MarkOrder])


class Marks:
    """The file ``marks.json`` of the runtime folder. It is no fence (G8): the ledger refuses claims without it, too."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "marks.json"

    def of(self, cluster: ClusterId) -> MarkOrder | None:
        """Return the mark by which a destination keeps off; None: it does not."""
        mark = self._all().get(cluster)
        return mark if mark is not None and mark.off else None

    def take(self, order: MarkOrder) -> bool:
        """Keep an order, unless there is a newer one of its destination; say whether it is so now. Raises OSError."""
        marks = self._all()
        known = marks.get(order.cluster)
        if known is not None and known.number >= order.number:
            return known.off is order.off
        write(self._path, _ORDERS.dump_python(marks | {order.cluster: order}, mode="json"))
        return True

    def _all(self) -> dict[ClusterId, MarkOrder]:
        try:
            return _ORDERS.validate_python(read(self._path))
        except (OSError, ValueError, ValidationError):
            return {}
