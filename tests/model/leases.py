"""Model B - ledger and leases. One device (a gang is one transaction and one script), two placement replicas, Redis that
may be wiped, roll back to what its replica had, or let keys lapse. A replica may stop between any two steps for any time."""

from dataclasses import dataclass

from tests.model.explore import Model, Step

SEQ, LINE, DMAX, LOCK, PC, E, RK, RL, SK, SL, F, SUSP, BACK, RN, TWO, GT, SG = (
    0,
    1,
    2,
    3,
    4,
    6,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
)


@dataclass(frozen=True)
class Leases:
    draw: str = "locked"
    order: str = "before"
    constraint: bool = True
    rule: str = "raise"
    lapse: str = "repair"
    rebuild: str = "raise"
    giveback: str = "compare"
    faults: int = 2
    cap: int = 4
    kinds: str = "wipe rollback lapse crash"
    ghost: bool = False

    def init(self) -> bytes:
        return bytes(19)

    def show(self, s: bytes) -> str:
        return f"live epoch in ledger={s[LINE]}, highest ever={s[DMAX]}, Redis holder={s[RK]} last seen={s[RL]}, suspect={s[SUSP]}"

    def succ(self, s: bytes) -> list[Step]:
        o = self
        out: list[Step] = []

        def add(label: str, b: bytearray, f: int = False) -> None:
            if f == 1:
                b[F] += 1
            out.append((label, bytes(b), bool(f)))

        ok = s[F] < o.faults
        for r in (0, 1):
            pc, e, n = s[PC + r], s[E + r], "AB"[r]
            if pc == 0 and s[SEQ] < o.cap and (o.constraint or s[LINE] == 0):
                b = bytearray(s)
                b[PC + r] = 1
                add(f"{n}: decides for the device on its view", b, 2)
            if pc == 1 and o.order == "gate":
                if s[RK] == 0 and s[GT] == 0:
                    b = bytearray(s)
                    b[GT] = r + 1
                    b[PC + r] = 7
                    add(f"{n}: takes the pending lease", b)
                elif s[GT] != r + 1:
                    b = bytearray(s)
                    b[PC + r] = 0
                    add(f"{n}: lease held by another, re-plans", b)
                b = bytearray(s)
                b[PC + r] = 7
                add(f"{n}: Redis away, goes on without", b)
            elif pc == 1:
                if o.draw == "early":
                    b = bytearray(s)
                    b[SEQ] += 1
                    b[E + r] = b[SEQ]
                    b[PC + r] = 2
                    add(f"{n}: draws epoch {b[SEQ]}", b)
                elif not s[LOCK] and o.constraint:
                    b = bytearray(s)
                    if s[LINE]:
                        b[PC + r] = 0
                        add(f"{n}: device taken in the ledger, gives up", b)
                    else:
                        b[LOCK] = r + 1
                        b[SEQ] += 1
                        b[E + r] = b[SEQ]
                        b[PC + r] = 3
                        add(f"{n}: locks the device row, then draws epoch {b[SEQ]}, inserts", b)
            if pc == 7 and not s[LOCK]:
                b = bytearray(s)
                if s[LINE]:
                    b[PC + r] = 0
                    b[GT] = 0 if s[GT] == r + 1 else s[GT]
                    add(f"{n}: device taken in the ledger, gives the pending lease back", b)
                else:
                    b[LOCK] = r + 1
                    b[SEQ] += 1
                    b[E + r] = b[SEQ]
                    b[PC + r] = 3
                    add(f"{n}: locks the device row, then draws epoch {b[SEQ]}, inserts", b)
            if pc == 2:
                b = bytearray(s)
                if not o.constraint:
                    b[PC + r] = 3
                    add(f"{n}: inserts (nothing refuses)", b)
                elif not s[LOCK]:
                    if s[LINE]:
                        b[PC + r] = 0
                        add(f"{n}: slot taken, gives up", b)
                    else:
                        b[LOCK] = r + 1
                        b[PC + r] = 3
                        add(f"{n}: inserts its line with epoch {e}", b)
            if pc == 3 and o.order == "before":
                b = bytearray(s)
                if o.rule == "refuse":
                    if s[RK] in (0, e) and e >= s[RL]:
                        b[RK] = b[RL] = e
                        b[PC + r] = 4
                        add(f"{n}: takes the lease for epoch {e}", b)
                    else:
                        b[PC + r] = 0
                        b[LOCK] = 0 if s[LOCK] == r + 1 else s[LOCK]
                        add(f"{n}: lease refused, rolls back", b)
                else:
                    if s[RK] < e:
                        b[RK] = e
                        b[RL] = max(s[RL], e)
                    b[PC + r] = 4
                    add(f"{n}: raises the lease to epoch {e}", b)
            if pc == (4 if o.order == "before" else 3):
                b = bytearray(s)
                if s[LINE]:
                    b[TWO] = 1
                if e <= s[DMAX]:
                    b[BACK] = 1
                b[LINE] = e
                b[DMAX] = max(s[DMAX], e)
                b[PC + r] = 0 if o.order == "before" else 6
                if s[LOCK] == r + 1:
                    b[LOCK] = 0
                add(f"{n}: commits the grant with epoch {e}", b)
                if ok and "crash" in o.kinds:
                    b = bytearray(s)
                    b[PC + r] = 5 if o.order == "before" else 0
                    if s[LOCK] == r + 1:
                        b[LOCK] = 0
                    add(f"FAULT {n}: commit fails", b, 1)
            if pc == 5:
                b = bytearray(s)
                b[PC + r] = 0
                if o.giveback == "blind" or s[RK] == e:
                    b[RK] = 0
                add(f"{n}: gives the lease of epoch {e} back", b)
            if pc == 6:
                b = bytearray(s)
                b[PC + r] = 0
                if s[RK] < e:
                    b[RK] = e
                    b[RL] = max(s[RL], e)
                b[GT] = 0 if s[RK] < e else s[GT]
                add(f"{n}: writes the lease for epoch {e} after commit", b)
            if pc and ok and "crash" in o.kinds:
                b = bytearray(s)
                b[PC + r] = 0
                if s[LOCK] == r + 1:
                    b[LOCK] = 0
                add(f"FAULT {n}: is killed", b, 1)
        if s[GT]:
            b = bytearray(s)
            b[GT] = 0
            add("Redis: pending lease expires", b)
        if s[LINE]:
            b = bytearray(s)
            b[LINE] = 0
            b[SUSP] = 0
            if s[RK] == s[LINE]:
                b[RK] = 0
            add(f"ledger: grant {s[LINE]} released on proof, lease deleted", b, 2)
            b = bytearray(s)
            b[LINE] = 0
            b[SUSP] = 0
            add(f"ledger: grant {s[LINE]} released on proof, killed before the lease is deleted", b, 2)
        if s[RN] != s[LINE]:
            b = bytearray(s)
            b[RN] = s[LINE]
            add(f"renewer: reads the ledger (epoch {s[LINE]})", b)
        v = s[RN]
        if v and s[RK] != v:
            b = bytearray(s)
            if o.rebuild == "refuse":
                if s[RK] == 0 and v >= s[RL]:
                    b[RK] = b[RL] = v
                    add(f"renewer: writes the lease of epoch {v}", b)
            elif o.rebuild == "force":
                b[RK] = b[RL] = v
                add(f"renewer: writes the lease of epoch {v}", b)
            elif s[RK] < v:
                b[RK] = v
                b[GT] = 0
                b[RL] = max(s[RL], v)
                add(f"renewer: raises the lease to epoch {v}", b)
        if s[RK] and s[RK] != s[RN]:
            b = bytearray(s)
            b[RK] = 0
            add(f"Redis: key of epoch {s[RK]} expires, nobody renews it", b)
        if o.lapse == "suspect" and s[LINE] and not s[RK] and not s[SUSP]:
            b = bytearray(s)
            b[SUSP] = 1
            add("sweeper: lease gone, device Suspect", b)
        if (s[SK], s[SL], s[SG]) != (s[RK], s[RL], s[GT]) and "rollback" in o.kinds:
            b = bytearray(s)
            b[SK], b[SL], b[SG] = s[RK], s[RL], s[GT]
            add("Redis: replicates", b)
        if ok:
            if "wipe" in o.kinds and (s[RK] or s[RL] or s[GT]):
                b = bytearray(s)
                b[RK] = b[RL] = b[GT] = 0
                add("FAULT Redis wiped", b, 1)
            if "rollback" in o.kinds and (s[SK], s[SL], s[SG]) != (s[RK], s[RL], s[GT]):
                b = bytearray(s)
                b[RK], b[RL], b[GT] = s[SK], s[SL], s[SG]
                add("FAULT Redis fails over to its replica", b, 1)
            if "lapse" in o.kinds and s[RK]:
                b = bytearray(s)
                b[RK] = 0
                add("FAULT renewer late, key lapses", b, 1)
        return out

    def check(self, s: bytes) -> str | None:
        if s[TWO]:
            return "I1 two live grants"
        if s[BACK]:
            return "epoch of the device went back"
        if s[SUSP]:
            return "I7 device Suspect by Redis alone"
        if self.order != "before" and s[RK] > s[DMAX]:
            return "Redis ahead of the ledger"
        if self.ghost and s[RK] and s[RK] != s[LINE]:
            return "Redis names a grant that is not live"
        return None

    def good(self, s: bytes) -> bool:
        return s[PC] == s[PC + 1] == 0 and s[RK] == s[LINE]


CONFIGS: dict[str, Model] = {
    "B1 no constraint in Postgres, leases only": Leases(draw="early", constraint=False, rule="refuse", faults=1),
    "B1b same, no Redis fault, a pause past ttl": Leases(
        draw="early", constraint=False, rule="refuse", faults=1, kinds="lapse"
    ),
    "B2 epoch drawn before the device is locked": Leases(
        draw="early", rule="refuse", rebuild="refuse", faults=1, kinds="wipe"
    ),
    "B2b same, no lease rule at all": Leases(draw="early", rule="raise", faults=0),
    "B3 lapse turns the device Suspect": Leases(lapse="suspect", faults=1),
    "B3b lapse=Suspect, lease after commit": Leases(order="after", lapse="suspect", faults=0),
    "B4 the page's lease rules, epoch under lock": Leases(rule="refuse", rebuild="refuse", faults=3),
    "B5 give back without comparing": Leases(giveback="blind", faults=2),
    "B6 ghost lease, before commit": Leases(ghost=True, faults=1, kinds="crash"),
    "B6b ghost lease, after commit": Leases(order="after", ghost=True, faults=0, kinds=""),
    "B-ok before commit, 3 faults": Leases(faults=3),
    "B-ok after commit, 3 faults": Leases(order="after", faults=3),
    "B-gate pending lease first, 3 faults": Leases(order="gate", faults=3),
    "B-gate0 same, no fault": Leases(order="gate", faults=0, kinds=""),
    "B-big before commit, 5 epochs, 3 faults": Leases(faults=3, cap=5),
}
