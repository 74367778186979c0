"""Model C - the life of one job over two attempts: admission (owner of the job), placement (owner of the grant), a run.
A fact once said may be delivered at any later time, in any order (the inbox lets each through once per consumer)."""

from dataclasses import dataclass

from tests.model.explore import Model, Step

JOB, ATT, G, P, FACT, SEENF, ADM, WD, WDS, TB, CH, PL, ENDS, CUT, BADR, F, ESC = (
    0,
    1,
    2,
    4,
    6,
    8,
    10,
    12,
    14,
    16,
    18,
    20,
    22,
    23,
    24,
    25,
    26,
)
QUEUED, ADMITTED, RUNNING, SUCC, FAILED, CANC = range(6)
ST, OK, KO, LOST = 1, 2, 4, 8


@dataclass(frozen=True)
class Life:
    attemptcheck: bool = True
    tombstone: bool = True
    discharge: str = "released"
    platform: bool = True
    endcheck: bool = True
    limit: int = 1
    faults: int = 1
    cancel: bool = True
    revoke_on_requeue: bool = True
    over: bool = True
    startdeadline: bool = True
    endless: bool = False
    outcome: bool = True

    def init(self) -> bytes:
        return bytes(27)

    def show(self, s: bytes) -> str:
        return f"job={['Queued', 'Admitted', 'Running', 'Succeeded', 'Failed', 'Cancelled'][s[JOB]]} attempt={s[ATT] + 1} grants={list(s[G : G + 2])} processes={list(s[P : P + 2])} charged={list(s[CH : CH + 2])} ends={s[ENDS]}"

    def succ(self, s: bytes) -> list[Step]:
        o = self
        out: list[Step] = []

        def add(label: str, b: bytearray, f: int = False) -> None:
            if f:
                b[F] += 1
            out.append((label, bytes(b), bool(f)))

        a = s[ATT]
        ended = s[JOB] >= SUCC
        if s[JOB] == QUEUED and s[CH] + s[CH + 1] < o.limit:
            b = bytearray(s)
            b[JOB] = ADMITTED
            b[CH + a] = 1
            b[ADM + a] = 1
            add(f"admission: attempt {a + 1} admitted, charged", b)
        if o.cancel and not ended:
            b = bytearray(s)
            b[JOB] = CANC
            b[ENDS] += 1
            b[WD + a] = 1
            add("user: cancels; job Cancelled, withdrawn said", b, False)
        for k in (0, 1):
            n = k + 1
            g, p = s[G + k], s[P + k]
            if s[ADM + k] == 1:
                b = bytearray(s)
                b[ADM + k] = 2
                if not s[TB + k]:
                    b[G + k] = 1
                    b[P + k] = 1
                    add(f"placement: hears admitted {n}, issues the grant; dispatch launches", b)
                else:
                    b[G + k] = 4
                    add(f"placement: hears admitted {n} after withdrawn {n}: refused, nothing issued", b)
            if s[WD + k] == 1 and not s[WDS + k]:
                b = bytearray(s)
                b[WDS + k] = 1
                if g == 1:
                    b[G + k] = 4
                    add(f"placement: hears withdrawn {n}, grant not claimed -> Released", b)
                elif g == 2:
                    b[G + k] = 3
                    add(f"placement: hears withdrawn {n} -> Revoking", b)
                elif g == 0 and s[ADM + k] < 2:
                    if o.tombstone:
                        b[TB + k] = 1
                        add(f"placement: hears withdrawn {n} first, notes it", b)
                    else:
                        add(f"placement: hears withdrawn {n}, knows no grant, ignores it", b)
                else:
                    add(f"placement: hears withdrawn {n}, nothing to do", b)
            if p == 1:
                b = bytearray(s)
                if g == 1:
                    b[G + k] = 2
                    b[P + k] = 2
                    b[FACT + k] |= ST
                    add(f"node: start of run {n} allowed (Claimed), process runs", b)
                elif g > 2:
                    b[P + k] = 4
                    add(f"node: start of run {n} refused", b)
                else:
                    continue
                if not s[CUT]:
                    out.append(out.pop())
                else:
                    out.pop()
            if p == 2:
                b = bytearray(s)
                b[P + k] = 3
                b[FACT + k] |= OK
                add(f"node: run {n} succeeds", b)
                b = bytearray(s)
                b[P + k] = 4
                b[FACT + k] |= KO
                add(f"node: run {n} fails", b)
                if o.endless:
                    out[:] = [(label, t, label.startswith("node: run") or f) for label, t, f in out]
                if g == 3 and not s[CUT]:
                    b = bytearray(s)
                    b[P + k] = 4
                    add(f"agent: stops run {n}", b)
            if g in (2, 3) and s[CUT] and not s[FACT + k] & LOST:
                b = bytearray(s)
                b[FACT + k] |= LOST
                add(f"dispatch: node silent past the deadline, run {n} lost", b)
            if g == 1 and o.startdeadline:
                b = bytearray(s)
                b[G + k] = 4
                b[FACT + k] |= KO | LOST * 0 | 16
                add(f"ledger: grant {n} not claimed by its deadline -> Released", b)
            if g == 2 and p in (3, 4) and not s[CUT]:
                b = bytearray(s)
                b[G + k] = 3
                add(f"placement: run {n} ended -> Revoking", b)
            if g == 3 and p != 2 and not s[CUT]:
                b = bytearray(s)
                b[G + k] = 4
                if o.outcome:
                    b[FACT + k] |= 16
                b[CH + k] = 0
                b[PL + k] = 0
                add(f"ledger: seal, grant {n} Released, charge ends", b)
            if g == 4 and (s[CH + k] or s[PL + k]):
                b = bytearray(s)
                b[CH + k] = b[PL + k] = 0
                add(f"admission: grant {n} Released, charge ends", b)
            if o.platform and g in (2, 3) and s[CUT] and s[CH + k] and (k != a or ended):
                b = bytearray(s)
                b[CH + k] = 0
                b[PL + k] = 1
                add(
                    f"admission: attempt {n} is closed, release unproved at its deadline: charge moves to the platform account",
                    b,
                )
            if g == 3 and s[CUT] and not s[ESC]:
                b = bytearray(s)
                b[ESC] = 1
                add("ledger: no proof in time, escalated", b)
            for f, nm in ((ST, "started"), (OK, "succeeded"), (KO, "failed"), (LOST, "lost")):
                if not (s[FACT + k] & f) or s[SEENF + k] & f or (s[CUT] and f != LOST and not s[FACT + k] & 16):
                    continue
                b = bytearray(s)
                b[SEENF + k] |= f
                lab = f"admission: hears {nm} of attempt {n}"
                if (o.attemptcheck and k != a) or (o.endcheck and ended):
                    add(lab + ": dropped", b)
                    continue
                if f == ST:
                    if s[JOB] == ADMITTED:
                        b[JOB] = RUNNING
                elif f == OK:
                    b[JOB] = SUCC
                    b[ENDS] += 1
                    if o.over:
                        b[WD + k] = 1
                    if k != a:
                        b[BADR] = 1
                elif f in (KO, LOST):
                    if k == 0 and a == 0:
                        b[JOB] = QUEUED
                        b[ATT] = 1
                    elif k == a:
                        b[JOB] = FAILED
                        b[ENDS] += 1
                    if o.revoke_on_requeue:
                        b[WD + k] = 1
                    if f == LOST and o.platform and b[CH + k]:
                        b[CH + k] = 0
                        b[PL + k] = 1
                if o.discharge == "end" and f != ST:
                    b[CH + k] = 0
                add(lab, b)
        if s[F] < o.faults and not s[CUT]:
            b = bytearray(s)
            b[CUT] = 1
            add("FAULT node of attempt 1/2 cut off", b, True)
        if s[CUT]:
            b = bytearray(s)
            b[CUT] = 0
            add("network: node is back", b, True)  # need not come back
        return out

    def check(self, s: bytes) -> str | None:
        if s[ENDS] > 1:
            return "I5 a second end"
        if s[BADR]:
            return "I5 result of a fenced attempt accepted"
        for k in (0, 1):
            if s[G + k] in (1, 2, 3) and not s[CH + k] and not s[PL + k]:
                return "I2 live grant without a charge"
        return None

    def good(self, s: bytes) -> bool:
        return (
            s[JOB] >= SUCC and all(s[G + k] in (0, 4) and not s[CH + k] for k in (0, 1)) and 2 not in s[P : P + 2]
        ) or (s[ESC] > 0 and s[JOB] >= SUCC)


CONFIGS: dict[str, Model] = {
    "C1 facts of an old attempt not dropped": Life(attemptcheck=False),
    "C2 end not final": Life(endcheck=False),
    "C3 withdrawn before admitted is ignored": Life(tombstone=False, faults=0, endless=True),
    "C4 charge ends with the fact, not the release": Life(discharge="end", platform=False),
    "C5 unproved attempt stays on the queue, limit 1": Life(platform=False, cancel=False),
    "C6 lost attempt not revoked": Life(revoke_on_requeue=False),
    "C7 end of the job not told to placement": Life(over=False),
    "C8 no deadline for an unclaimed grant": Life(startdeadline=False, cancel=False),
    "C9 seal does not carry the outcome": Life(outcome=False, faults=2, cancel=False),
    "C-ok amended, endless runs": Life(faults=0, endless=True),
    "C-ok amended, limit 1, node may stay away": Life(faults=2),
    "C-ok amended, no cancel": Life(faults=2, cancel=False),
}
