"""A small explicit-state model checker: breadth first, every state kept, shortest counterexample.

Liveness: from every reachable state a good state must be reachable by steps that are not faults.
That is "if faults stop, it ends" under strong fairness (each step that is enabled again and again is taken).
"""

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

Step = tuple[str, bytes, bool]  # label, the state after it, whether it is a fault


class Model(Protocol):
    """What a model must say of itself; a state is a short bytes value."""

    def init(self) -> bytes:
        """The first state."""

    def succ(self, s: bytes) -> list[Step]:
        """Every step that state `s` allows."""

    def check(self, s: bytes) -> str | None:
        """The name of the invariant that `s` breaks, or None."""

    def good(self, s: bytes) -> bool:
        """True when nothing more has to happen (all ended, device Free or escalated)."""

    def show(self, s: bytes) -> str:
        """One line about `s` for the reader of a trace."""


@dataclass(frozen=True)
class Outcome:
    """What a search found. `trace` is (label, state) from the first state to the bad one; empty when all is well."""

    result: str
    states: int
    steps: int
    seconds: float
    trace: list[tuple[str, bytes]] = field(default_factory=list)


def explore(model: Model, *, liveness: bool = True, limit: int = 30_000_000) -> Outcome:
    """Search every state. O(states + steps) time and memory; stops at the first violation or at `limit` states."""
    began = time.monotonic()
    first = model.init()
    index = {first: 0}
    states, parent, via = [first], array("i", [-1]), ["init"]
    source, target = array("I"), array("I")
    at, steps = 0, 0
    check, succ = model.check, model.succ

    def trace(to: int) -> list[tuple[str, bytes]]:
        out = []
        while to >= 0:
            out.append((via[to], states[to]))
            to = parent[to]
        return out[::-1]

    def outcome(result: str, bad: int | None = None) -> Outcome:
        return Outcome(result, len(states), steps, time.monotonic() - began, [] if bad is None else trace(bad))

    broken = check(first)
    if broken is not None:
        return outcome("VIOLATION " + broken, 0)
    while at < len(states):
        for label, after, fault in succ(states[at]):
            steps += 1
            to = index.get(after)
            if to is None:
                to = len(states)
                index[after] = to
                states.append(after)
                parent.append(at)
                via.append(label)
                broken = check(after)
                if broken is not None:
                    return outcome("VIOLATION " + broken, to)
            if liveness and not fault:
                source.append(at)
                target.append(to)
        at += 1
        if len(states) > limit:
            return outcome("LIMIT")
    stuck = _stuck(model, states, source, target) if liveness else None
    return outcome("ok") if stuck is None else outcome("STUCK (liveness)", stuck)


def report(name: str, found: Outcome, model: Model) -> None:
    """Print one line, and the shortest trace to what is wrong."""
    line = f"{name:<48} {found.result:<34} states={found.states:>10,} steps={found.steps:>11,} {found.seconds:6.1f}s"
    print(line, flush=True)
    for n, (label, _) in enumerate(found.trace[1:], 1):
        print(f"      {n:>2}. {label}")
    if found.trace:
        print("      end:", model.show(found.trace[-1][1]))


def _stuck(model: Model, states: Sequence[bytes], source: "array[int]", target: "array[int]") -> int | None:
    """The first state from which no good state can be reached, or None."""
    head, following = array("i", [-1]) * len(states), array("i", [-1]) * len(source)  # edges turned round, linked
    for edge, to in enumerate(target):
        following[edge] = head[to]
        head[to] = edge
    reached = bytearray(len(states))
    todo = [i for i, s in enumerate(states) if model.good(s)]
    for i in todo:
        reached[i] = 1
    while todo:
        edge = head[todo.pop()]
        while edge >= 0:
            before = source[edge]
            if not reached[before]:
                reached[before] = 1
                todo.append(before)
            edge = following[edge]
    return reached.index(0) if 0 in reached else None
