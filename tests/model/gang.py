"""Model F - a gang over two nodes: two grants of two parts each want the same two devices, one on each node.

The ledger is one atomic object; launches, answers and stops are late or lost, a node is cut off or loses its power.
"""

from dataclasses import dataclass

from tests.model.explore import Model, Step

P, I, CUT, ESC, F, BOOT = 0, 4, 8, 10, 11, 12  # parts and instances by grant and node; the rest by node
SIZE = 14
NONE, ISSUED, CLAIMED, REVOKING, RELEASED = range(5)
NO, CALL, ASK, TICKET, RUN, END, LEFT, WELL = range(8)  # LEFT: it ended well, and left a process behind
LOCKED = (ASK, TICKET, RUN, LEFT)
PROCESS = (RUN, LEFT)
PART = ("none", "Issued", "Claimed", "Revoking", "Released")
INSTANCE = ("no", "call", "asks", "has leave", "RUNS", "end", "ENDED WELL, leaves a process", "ended well")


@dataclass(frozen=True)
class Gang:
    """Options leave rules out: issue and revoke in one transaction (R1, R4), proof for each part (R5), one end for all.

    ``alone``: runs end well on either node, and a part that did is revoked alone while the other goes on (R13).
    """

    together: bool = True  # issued whole or not at all
    whole: bool = True  # revoked whole
    each: bool = True  # each part needs the proof of its own node
    bound: bool = True  # a boot's end frees the part of its node only
    all_end: bool = True  # the end of one part ends the grant
    alone: bool = False  # a part that ended well is revoked alone
    word: bool = False  # and is free by the word of its node, without a seal
    half: bool = True  # half a gang counts as a violation
    cancel: bool = True
    faults: int = 1

    def init(self) -> bytes:
        return bytes(SIZE)

    def show(self, s: bytes) -> str:
        parts = [[PART[s[P + 2 * k + n]] for n in (0, 1)] for k in (0, 1)]
        runs = [[INSTANCE[s[I + 2 * k + n]] for n in (0, 1)] for k in (0, 1)]
        return f"parts {parts} runs {runs} cut={list(s[CUT : CUT + 2])} escalated={s[ESC]}"

    def succ(self, s: bytes) -> list[Step]:
        out: list[Step] = []
        for k in (0, 1):
            self._issue(s, k, out)
            self._revoke(s, k, out)
            for n in (0, 1):
                self._node(s, k, n, out)
                self._release(s, k, n, out)
        self._faults(s, out)
        return out

    def _issue(self, s: bytes, k: int, out: list[Step]) -> None:
        other = 1 - k
        free = [n for n in (0, 1) if s[P + 2 * other + n] in (NONE, RELEASED) and s[P + 2 * k + n] == NONE]
        if self.together:
            if len(free) == 2:
                out.append(
                    _step(s, f"ledger: gang {k + 1} issued on both nodes", {P + 2 * k: ISSUED, P + 2 * k + 1: ISSUED})
                )
            return
        out += [_step(s, f"ledger: gang {k + 1} is given node {n + 1}", {P + 2 * k + n: ISSUED}) for n in free]

    def _revoke(self, s: bytes, k: int, out: list[Step]) -> None:
        a, b = s[P + 2 * k], s[P + 2 * k + 1]
        if NONE in (a, b) or not (self.cancel or ISSUED in (a, b)):
            return  # half a gang waits for the rest; without a cancel only the start deadline revokes
        groups = ((0, 1),) if self.whole else ((0,), (1,))
        for nodes in groups:
            changes = {P + 2 * k + n: _revoked(s[P + 2 * k + n]) for n in nodes}
            if any(s[at] != state for at, state in changes.items()):
                out.append(_step(s, f"ledger: gang {k + 1} revoked on {[n + 1 for n in nodes]}", changes))

    def _node(self, s: bytes, k: int, n: int, out: list[Step]) -> None:
        at, part = I + 2 * k + n, s[P + 2 * k + n]
        st, run = s[at], f"{k + 1} on node {n + 1}"
        if st == NO and part != NONE:
            out.append(_step(s, f"dispatch: launch call of run {run} leaves", {at: CALL}))
        elif st == CALL:
            clear = s[I + 2 * (1 - k) + n] not in LOCKED
            out.append(_step(s, f"guard: run {run} takes the lock and asks", {at: ASK if clear else END}))
            out.append(_step(s, f"network: launch call of run {run} lost", {at: END}))
        elif st == ASK and s[CUT + n]:
            out.append(_step(s, f"guard: no answer, run {run} gives up", {at: END}))
        elif st == ASK:
            if part == ISSUED:
                out.append(_step(s, f"ledger: start of run {run} allowed", {at: TICKET, P + 2 * k + n: CLAIMED}))
            else:
                out.append(_step(s, f"ledger: start of run {run} refused", {at: END}))
        elif st == TICKET:
            out.append(_step(s, f"node: run {run} starts", {at: RUN}))
        elif st == RUN and self.alone:
            out.append(_step(s, f"node: run {run} ends well", {at: WELL}))
            out.append(_step(s, f"node: run {run} ends well and leaves a process behind", {at: LEFT}))
            out.append(_step(s, f"node: run {run} fails", {at: END}))
        elif st == LEFT:
            out.append(_step(s, f"node: what run {run} has left ends", {at: WELL}))
        elif st == RUN and n == 0:  # what runs on the other node waits for it, and never ends by itself
            out.append(_step(s, f"node: run {run} ends", {at: END}))
        elif st == RUN and part in (REVOKING, RELEASED) and not s[CUT + n]:
            out.append(_step(s, f"agent: stops run {run}", {at: END}))

    def _release(self, s: bytes, k: int, n: int, out: list[Step]) -> None:
        at, run = P + 2 * k + n, s[I + 2 * k + n]
        if s[at] == REVOKING and run not in LOCKED and not s[CUT + n]:
            parts = {at: RELEASED} if self.each else _all_over(k)
            out.append(_step(s, f"ledger: seal of gang {k + 1} by node {n + 1}", parts))
        if s[at] == REVOKING and s[BOOT + n] >> k & 1:
            parts = {at: RELEASED} if self.bound else _all_over(k)
            out.append(_step(s, f"ledger: the boot of gang {k + 1} on node {n + 1} has ended", parts))
        if s[at] == REVOKING and s[CUT + n] and not s[ESC]:
            out.append(_step(s, "ledger: no proof in time, escalated", {ESC: 1}))
        if s[at] == CLAIMED and run in (LEFT, WELL) and not s[CUT + n] and s[P + 2 * k + 1 - n] in (ISSUED, CLAIMED):
            parts = {at: RELEASED if self.word else REVOKING}
            out.append(_step(s, f"placement: gang {k + 1} ended well on node {n + 1}, revoked there alone", parts))
        elif s[at] == CLAIMED and run in (END, LEFT, WELL) and not s[CUT + n]:
            out.append(_step(s, f"placement: run {k + 1} ended on node {n + 1}", self._ended(s, k, n)))

    def _ended(self, s: bytes, k: int, n: int) -> dict[int, int]:
        nodes = (0, 1) if self.all_end else (n,)
        return {P + 2 * k + each: _revoked(s[P + 2 * k + each]) for each in nodes}

    def _faults(self, s: bytes, out: list[Step]) -> None:
        if s[F] >= self.faults:
            return
        for n in (0, 1):
            if not s[CUT + n]:
                out.append(_step(s, f"FAULT node {n + 1} cut off", {CUT + n: 1, F: s[F] + 1}, fault=True))
            locked = [k for k in (0, 1) if s[I + 2 * k + n] in LOCKED]
            gone = {I + 2 * k + n: WELL if s[I + 2 * k + n] == LEFT else END for k in locked}
            under = sum(1 << k for k in (0, 1) if s[P + 2 * k + n] in (CLAIMED, REVOKING))
            ended = {BOOT + n: s[BOOT + n] | under}
            out.append(_step(s, f"FAULT node {n + 1} reboots", {**gone, **ended, F: s[F] + 1}, fault=True))

    def check(self, s: bytes) -> str | None:
        for n in (0, 1):
            parts = s[P + n], s[P + 2 + n]
            runs = s[I + n], s[I + 2 + n]
            if all(run in PROCESS for run in runs):
                return "I1 two attempts on one device"
            if any(run in PROCESS and part in (NONE, RELEASED) for run, part in zip(runs, parts, strict=True)):
                return "I1 process on a device that is Free"
            if all(NONE < part < RELEASED for part in parts):
                return "I1 two live grants"
        return self._check_gangs(s) if self.half else None

    def _check_gangs(self, s: bytes) -> str | None:
        for k in (0, 1):
            begun = [part in (ISSUED, CLAIMED) for part in s[P + 2 * k : P + 2 * k + 2]]
            well = [run in (LEFT, WELL) for run in s[I + 2 * k : I + 2 * k + 2]]
            if any(begun) and not all(b or w for b, w in zip(begun, well, strict=True)):
                return "I3 a part may start and another of its gang is not held"
        return None

    def good(self, s: bytes) -> bool:
        over = all(part == RELEASED for part in s[P : P + 4]) and not any(run in LOCKED for run in s[I : I + 4])
        return over or bool(s[ESC])


def _step(s: bytes, label: str, changes: dict[int, int], *, fault: bool = False) -> Step:
    b = bytearray(s)
    for at, value in changes.items():
        b[at] = value
    return label, bytes(b), fault


def _revoked(part: int) -> int:
    return {ISSUED: RELEASED, CLAIMED: REVOKING}.get(part, part)


def _all_over(k: int) -> dict[int, int]:
    return {P + 2 * k + n: RELEASED for n in (0, 1)}


CONFIGS: dict[str, Model] = {
    "F1 a gang is revoked part by part": Gang(whole=False),
    "F2 the seal of one node frees the gang": Gang(each=False),
    "F3 parts are issued one by one": Gang(together=False, half=False, faults=0),
    "F4 the end of one part is not the end of all": Gang(all_end=False, half=False, cancel=False, faults=0),
    "F5 the end of one boot frees the gang": Gang(bound=False),
    "F6 a part that ended well is free by its node's word": Gang(alone=True, word=True),
    "F-ok gangs of two nodes, no fault, no cancel": Gang(cancel=False, faults=0),
    "F-ok gangs of two nodes, 1 fault": Gang(),
    "F-ok gangs of two nodes, 3 faults": Gang(faults=3),
    "F-ok a part that ended well goes alone, no fault, no cancel": Gang(alone=True, cancel=False, faults=0),
    "F-ok a part that ended well goes alone, 1 fault": Gang(alone=True),
    "F-ok a part that ended well goes alone, 3 faults": Gang(alone=True, faults=3),
}
