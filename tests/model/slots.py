"""Model S - one device that is shared by slots, and changes its partition: whole (0) or split into two slots (1).

Grants: the whole device, slot 1, slot 2, both slots. The ledger is atomic; launches, answers and acknowledgements are late.
"""

from dataclasses import dataclass

from tests.model.explore import Model, Step

G, I, LAYOUT, LEDGER, HOLD, WANT, ACK, ASKED, F, OV = 0, 4, 8, 9, 10, 11, 12, 13, 14, 15
SIZE = 16
NONE, ISSUED, CLAIMED, REVOKING, RELEASED = range(5)
NO, CALL, ASK, TICKET, RUN, END = range(6)
LOCKED = (ASK, TICKET, RUN)
NAMES = ("the whole device", "slot 1", "slot 2", "both slots")
SPANS = ({1, 2}, {1}, {2}, {1, 2})
LAYOUTS = (0, 1, 1, 1)  # in which partition each can be had
PART = ("none", "Issued", "Claimed", "Revoking", "Released")
INSTANCE = ("no", "call", "asks", "has leave", "RUNS", "end")


@dataclass(frozen=True)
class Slots:
    """Options leave rules out."""

    spans: bool = True  # lines exclude each other by what they cover, not by their names
    locks: bool = True  # a start locks every slot that it covers
    hold: bool = True  # a change of the partition holds the whole device in the ledger
    look: bool = True  # and the agent looks whether all slots are clear before it changes anything
    ack: bool = True  # and the hold is dropped when the agent has said that it is done
    changes: int = 1
    faults: int = 1

    def init(self) -> bytes:
        return bytes([*bytes(LAYOUT), 1, 1, *bytes(SIZE - LEDGER - 1)])

    def show(self, s: bytes) -> str:
        grants = {NAMES[g]: f"{PART[s[G + g]]}, {INSTANCE[s[I + g]]}" for g in range(4) if s[G + g]}
        return f"{grants} partition={s[LAYOUT]}, in the ledger {s[LEDGER]}, hold={s[HOLD]} overridden={s[OV]}"

    def succ(self, s: bytes) -> list[Step]:
        out: list[Step] = []
        for g in range(4):
            self._ledger(s, g, out)
            self._node(s, g, out)
        self._change(s, out)
        return out

    def _ledger(self, s: bytes, g: int, out: list[Step]) -> None:
        state, name = s[G + g], NAMES[g]
        live = [other for other in range(4) if NONE < s[G + other] < RELEASED]
        taken = any(SPANS[g] & SPANS[other] if self.spans else g == other for other in live)
        if state == NONE and not taken and not s[HOLD] and s[LEDGER] == LAYOUTS[g]:
            out.append(_step(s, f"ledger: {name} granted", {G + g: ISSUED}))
        if state in (ISSUED, CLAIMED):
            after = RELEASED if state == ISSUED else REVOKING
            out.append(_step(s, f"ledger: {name} revoked", {G + g: after}))
        if state == REVOKING:
            holders = [other for other in range(4) if s[I + other] in LOCKED and SPANS[g] & SPANS[other]]
            if not holders:
                out.append(_step(s, f"ledger: seal of {name}", {G + g: RELEASED}))
            if g in holders and s[F] < self.faults:
                changes = {G + g: RELEASED, OV: 1, F: s[F] + 1}
                out.append(_step(s, f"FAULT a person frees {name} by override, wrongly", changes, fault=True))

    def _node(self, s: bytes, g: int, out: list[Step]) -> None:
        at, st, name = I + g, s[I + g], NAMES[g]
        if st == NO and s[G + g] != NONE:
            out.append(_step(s, f"dispatch: launch call for {name} leaves", {at: CALL}))
        elif st == CALL:
            ready = s[LAYOUT] == LAYOUTS[g] and not self._busy(s, g)
            out.append(_step(s, f"guard: run on {name} {'asks' if ready else 'refused'}", {at: ASK if ready else END}))
        elif st == ASK and s[G + g] == ISSUED:
            out.append(_step(s, f"ledger: start on {name} allowed", {at: TICKET, G + g: CLAIMED}))
        elif st == ASK:
            out.append(_step(s, f"ledger: start on {name} refused", {at: END}))
        elif st == TICKET:
            out.append(_step(s, f"node: run on {name} starts", {at: RUN}))
        elif st == RUN:
            out.append(_step(s, f"node: run on {name} ends", {at: END}))

    def _busy(self, s: bytes, g: int) -> bool:
        others = (other for other in range(4) if other != g and s[I + other] in LOCKED)
        return any(SPANS[g] & SPANS[other] for other in others) if self.locks else False

    def _change(self, s: bytes, out: list[Step]) -> None:
        live = any(NONE < state < RELEASED for state in s[G : G + 4])
        if not s[WANT] and not s[ACK] and s[ASKED] < self.changes:
            out.append(_step(s, "operator: wants the other partition", {WANT: 1, ASKED: s[ASKED] + 1}, fault=True))
        if s[WANT] and self.hold and not s[HOLD] and not live:
            out.append(_step(s, "ledger: holds the whole device", {HOLD: 1}))
        clear = not self.look or not any(run in LOCKED for run in s[I : I + 4])
        if s[WANT] and (s[HOLD] or not self.hold) and clear:
            drop = {} if self.ack else {HOLD: 0}
            out.append(_step(s, "agent: changes the partition", {LAYOUT: 1 - s[LAYOUT], WANT: 0, ACK: 1, **drop}))
        if s[ACK]:
            out.append(_step(s, "ledger: hears of the partition", {LEDGER: s[LAYOUT], HOLD: 0, ACK: 0}))

    def check(self, s: bytes) -> str | None:
        for g in range(4):
            for other in range(g):
                if SPANS[g] & SPANS[other]:
                    if s[I + g] == s[I + other] == RUN:
                        return "I1 two attempts on one slot"
                    if NONE < s[G + g] < RELEASED and NONE < s[G + other] < RELEASED:
                        return "I1 two live grants on one slot"
            if s[I + g] == RUN and s[LAYOUT] != LAYOUTS[g]:
                return "I7 partition changed under a process"
            if s[G + g] in (ISSUED, CLAIMED) and s[LAYOUT] != LAYOUTS[g]:
                return "I1 a grant of slots that are not there"
            if s[I + g] == RUN and s[G + g] == RELEASED and not s[OV]:
                return "I1 process on a slot that is Free"
        return None

    def good(self, s: bytes) -> bool:
        live = any(NONE < state < RELEASED for state in s[G : G + 4])
        return not live and not any(run in LOCKED for run in s[I : I + 4]) and not (s[WANT] or s[HOLD] or s[ACK])


def _step(s: bytes, label: str, changes: dict[int, int], *, fault: bool = False) -> Step:
    b = bytearray(s)
    for at, value in changes.items():
        b[at] = value
    return label, bytes(b), fault


CONFIGS: dict[str, Model] = {
    "S1 lines exclude each other by name": Slots(spans=False),
    "S2 a start does not lock every slot that it covers": Slots(locks=False),
    "S3 the partition changes without a hold": Slots(hold=False),
    "S4 the agent does not look before it changes": Slots(look=False),
    "S5 the hold is dropped before the agent has said so": Slots(ack=False),
    "S-ok one change, 1 fault": Slots(),
    "S-ok one change, no fault": Slots(faults=0),
    "S-ok three changes, 3 faults": Slots(changes=3, faults=3),
}
