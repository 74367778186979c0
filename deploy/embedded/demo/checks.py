"""What must have held all the time, checked in three independent records: ledger, bill, and the jobs' diary. Pure."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from deploy.embedded.demo.books import Books, Charge, Hold
from deploy.embedded.demo.diary import Entry

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
LEDGER_SLACK_SECONDS = 0.05  # a job's clock and the database's are read by different processes
HOUR_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, and every way in which it was broken."""

    promise: str
    broken: tuple[str, ...]


def all_verdicts(
    books: Books, diary: Sequence[Entry], *, quota: Mapping[tuple[str, str], int], gangs: Mapping[str, int]
) -> list[Verdict]:
    """Check everything. `quota` by tenant and queue, in devices; `gangs` says how many devices each job asked for."""
    return [
        Verdict("one owner: a device has at most one grant at a time", tuple(_shared(books.holds))),
        Verdict("one user: no two processes had a device at the same time", tuple(_used_twice(diary))),
        Verdict("no start without a grant: every process ran inside its own", tuple(_outside(books.holds, diary))),
        Verdict("gangs whole: every grant has all the devices the job asked for", tuple(_partial(books.holds, gangs))),
        Verdict("epochs only rise on a device", tuple(_fallen(books.holds))),
        Verdict("quota: no queue ever held more than its own", tuple(_over(books.holds, quota))),
        Verdict("everything given back: no device is held at the end", tuple(_kept(books.holds))),
        Verdict("the bill is the granted time, once", tuple(_wrongly_billed(books))),
    ]


def _shared(holds: Iterable[Hold]) -> Iterable[str]:
    for device, own in _grouped(holds, lambda hold: hold.device).items():
        for first, second in pairwise(sorted(own, key=lambda hold: hold.issued)):
            if first.released is None or second.issued < first.released:
                yield f"{device}: {second.job} was granted it before {first.job} gave it back"


def _used_twice(diary: Iterable[Entry]) -> Iterable[str]:
    uses = [(device, entry) for entry in diary for device in entry.devices]
    for device, own in _grouped(uses, lambda use: use[0]).items():
        for (_, first), (_, second) in pairwise(sorted(own, key=lambda use: use[1].begin)):
            if first.end is None or second.begin < first.end:
                yield f"{device}: {second.job} began before {first.job} ended"


def _outside(holds: Iterable[Hold], diary: Iterable[Entry]) -> Iterable[str]:
    by_device = {(hold.grant, hold.device): hold for hold in holds}
    for entry in diary:
        for device in entry.devices:
            hold = by_device.get((entry.grant, device))
            if hold is None or hold.rank != entry.rank:
                yield f"{entry.job} rank {entry.rank} ran on {device}, which was not granted to it"
            elif not _within(entry, hold):
                yield f"{entry.job} rank {entry.rank} ran on {device} outside its grant"


def _within(entry: Entry, hold: Hold) -> bool:
    begun = hold.claimed is not None and entry.begin >= hold.claimed - LEDGER_SLACK_SECONDS
    return begun and (hold.released is None or (entry.end or entry.begin) <= hold.released + LEDGER_SLACK_SECONDS)


def _partial(holds: Iterable[Hold], gangs: Mapping[str, int]) -> Iterable[str]:
    for grant, own in _grouped(holds, lambda hold: hold.grant).items():
        if len(own) != gangs[own[0].job]:
            yield f"{grant}: {own[0].job} got {len(own)} devices of {gangs[own[0].job]}"


def _fallen(holds: Iterable[Hold]) -> Iterable[str]:
    for device, own in _grouped(holds, lambda hold: hold.device).items():
        for first, second in pairwise(sorted(own, key=lambda hold: hold.issued)):
            if second.epoch <= first.epoch:
                yield f"{device}: epoch {second.epoch} of {second.job} after {first.epoch} of {first.job}"


def _over(holds: Iterable[Hold], quota: Mapping[tuple[str, str], int]) -> Iterable[str]:
    for queue, own in _grouped(holds, lambda hold: (hold.tenant, hold.queue)).items():
        steps = [(hold.issued, 1) for hold in own] + [(hold.released, -1) for hold in own if hold.released is not None]
        held = 0
        for _, change in sorted(steps):  # at the same moment what is given back counts first
            held += change
            if held > quota[queue]:
                yield f"{queue[0]}/{queue[1]} held {held} devices with a quota of {quota[queue]}"


def _kept(holds: Iterable[Hold]) -> Iterable[str]:
    return (f"{hold.label} is still held by {hold.job} ({hold.note})" for hold in holds if hold.released is None)


def _wrongly_billed(books: Books) -> Iterable[str]:
    billed = {(charge.grant, charge.device): charge for charge in books.charges}
    for hold in books.holds:
        charge = billed.get((hold.grant, hold.device))
        if charge is None:
            yield f"{hold.job} on {hold.label} was not billed"
        elif (charge.start, charge.end) != (hold.issued, hold.released) or abs(
            _owed(charge) - charge.amount_micros
        ) > 1:
            yield f"{hold.job} on {hold.label} was billed {charge} for {hold.issued} to {hold.released}"
    if len(billed) != len(books.charges) or billed.keys() - {(hold.grant, hold.device) for hold in books.holds}:
        yield "something was billed twice, or without a grant"


def _owed(charge: Charge) -> float:
    return (charge.end - charge.start) * charge.micros_per_hour / HOUR_SECONDS


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
