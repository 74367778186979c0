"""Model D - which device the run really gets, and a device that moves between two destinations.
Rebind: two devices on one node, two grants; the backend's own allocator picks any device free on the node.
Move:   one device, owner cluster 1 or 2 (inventory owns the fact), grants from placement with a view that may be old,
        native (unmanaged) jobs of each cluster's own users while that cluster is not marked off."""

from dataclasses import dataclass

from tests.model.explore import Model, Step


@dataclass(frozen=True)
class Rebind:
    """per grant k: state 0 none 1 Issued 2 Claimed 3 ended ; line (device 1/2, 0 none) ; run 0 none 1 launched 2 running on dev 3 over ; actual"""

    claim_actual: bool = True
    swap: bool = True
    confirm: bool = False

    def init(self) -> bytes:
        return bytes(10)  # G0 G1 L0 L1 P0 P1 A0 A1 conflict told

    def show(self, s: bytes) -> str:
        return (
            f"grants {list(s[0:2])} lines {list(s[2:4])} runs {list(s[4:6])} really on {list(s[6:8])} escalated={s[8]}"
        )

    def succ(self, s: bytes) -> list[Step]:
        out: list[Step] = []

        def add(label: str, b: bytearray) -> None:
            out.append((label, bytes(b), False))

        for k in (0, 1):
            o = 1 - k
            n = k + 1
            G, L, P, A = s[k], s[2 + k], s[4 + k], s[6 + k]
            if G == 0:
                for d in (1, 2):
                    if s[2 + o] != d:
                        b = bytearray(s)
                        b[k] = 1
                        b[2 + k] = d
                        b[4 + k] = 1
                        add(f"ledger: grant {n} holds device {d}; launched", b)
            if P == 1:
                for d in (1, 2):
                    if s[4 + o] == 2 and s[6 + o] == d:
                        continue  # the node's own allocator never doubles
                    b = bytearray(s)
                    if not self.claim_actual:
                        b[4 + k] = 2
                        b[6 + k] = d
                        b[k] = 2
                        add(f"node: run {n} starts on device {d} (epoch not old)", b)
                        continue
                    if d == L:
                        b[4 + k] = 2
                        b[6 + k] = d
                        b[k] = 2
                        add(f"ledger: claim {n} with device {d} as granted; runs", b)
                    elif s[2 + o] != d:
                        b[2 + k] = d
                        b[4 + k] = 2
                        b[6 + k] = d
                        b[k] = 2
                        add(f"ledger: claim {n} with device {d}, rebound; runs", b)
                    elif self.swap and s[o] == 1:
                        b[2 + k] = d
                        b[2 + o] = L
                        b[4 + k] = 2
                        b[6 + k] = d
                        b[k] = 2
                        add(f"ledger: claim {n} with device {d}, exchanged with the unclaimed grant {o + 1}; runs", b)
                    else:
                        b[4 + k] = 3
                        b[k] = 3
                        b[2 + k] = 0
                        add(
                            f"ledger: claim {n} with device {d} refused, held by the running grant {o + 1}; attempt ends, requeued",
                            b,
                        )
            if P == 2 and not self.claim_actual and L != A:  # the acknowledgement arrives later
                b = bytearray(s)
                if s[2 + o] != A:
                    b[2 + k] = A
                    add(f"ledger: confirm says device {A}; grant {n} rebound", b)
                elif not s[8]:
                    b[8] = 1
                    add(f"ledger: confirm of {n} says device {A}, held by grant {o + 1}: escalated, nothing freed", b)
            if P == 2:
                b = bytearray(s)
                b[4 + k] = 3
                b[k] = 3
                b[2 + k] = 0
                b[6 + k] = 0
                add(f"run {n} ends, proved, released", b)
        return out

    def check(self, s: bytes) -> str | None:
        for k in (0, 1):
            if s[4 + k] == 2 and s[6 + k] != s[2 + k]:
                return "I1 process on a device its grant does not hold"
        return None

    def good(self, s: bytes) -> bool:
        return s[4] == s[5] == 3


@dataclass(frozen=True)
class Move:
    """OWN owner, VIEW placement's view, LINE 0 free / 1,2 grant for that cluster / 3 transfer hold, RUN cluster of managed process,
    LAUNCH cluster of a launch under way, NAT native process of cluster, MARK bits: cluster c told to keep off and acknowledged, WANT, told"""

    OWN, VIEW, LINE, RUN, LAUNCH, NAT, M1, M2, WANT, EPO, EPV, ASKED, HT, SAW = range(14)
    hold: bool = True
    ack: bool = True
    ownercheck: bool = True
    scan: bool = True
    clear: bool = True
    version: bool = True
    after: bool = True

    def init(self) -> bytes:
        b = bytearray(14)
        b[0] = b[1] = 1
        b[self.M2] = 2
        b[self.EPO] = b[self.EPV] = 1
        return bytes(b)

    def show(self, s: bytes) -> str:
        return f"owner={s[0]} view={s[1]} line={s[2]} managed process of={s[3]} native process of={s[5]} marks={list(s[6:8])} (0 none 1 asked 2 acknowledged)"

    def succ(self, s: bytes) -> list[Step]:
        o = self
        out: list[Step] = []
        O, V, L, R, LA, NA = s[:6]

        def add(label: str, b: bytearray, f: int = False) -> None:
            out.append((label, bytes(b), bool(f)))

        busy = R or NA
        if L == 0:
            b = bytearray(s)
            b[2] = V
            b[4] = V
            add(f"placement: grant for cluster {V}; launch on its way", b, True)
        if LA:
            b = bytearray(s)
            if o.ownercheck and LA != O:
                b[4] = 0
                b[2] = 0 if L == LA else L
                add(f"claim from cluster {LA} refused: not the owner; grant ends", b)
            elif o.scan and busy:
                b[4] = 0
                b[2] = 0 if L == LA else L
                add(f"guard of cluster {LA}: device not clear, refused; grant ends", b)
            else:
                b[4] = 0
                b[3] = LA
                add(f"managed run of cluster {LA} starts", b)
        if R:
            b = bytearray(s)
            b[3] = 0
            b[2] = 0 if L == R else L
            add("managed run ends, proved, released", b)
        if NA:
            b = bytearray(s)
            b[5] = 0
            add("native run ends", b)
        for c in (1, 2):
            if s[o.M1 + c - 1] != 2 and not NA and c != R:
                b = bytearray(s)
                b[5] = c
                add(f"cluster {c}: a native job of its own users starts", b, True)
            if s[o.M1 + c - 1] == 1:
                b = bytearray(s)
                b[o.M1 + c - 1] = 2
                add(f"cluster {c}: acknowledges the mark (keeps off)", b)
        if not s[o.WANT] and s[o.ASKED] < 2:
            b = bytearray(s)
            b[o.WANT] = 3 - O
            b[o.ASKED] += 1
            add(f"operator: move the device to cluster {3 - O}", b, True)
        W = s[o.WANT]
        if W:
            if o.hold and L == 0:
                b = bytearray(s)
                b[2] = 3
                b[o.HT] = s[o.EPO]
                add(f"placement: transfer hold on the slots, for owner epoch {s[o.EPO]}", b)
            mine = L == 3 and (s[o.HT] == s[o.EPO] or not o.version)
            if (mine or not o.hold) and s[o.M1 + O - 1] == 0:
                b = bytearray(s)
                b[o.M1 + O - 1] = 1
                add(f"inventory: asks cluster {O} to keep off", b)
            ready = (mine or not o.hold) and s[o.M1 + O - 1] == 2
            if not s[o.SAW] and not busy and L in (0, 3) and (ready or not o.after):
                b = bytearray(s)
                b[o.SAW] = 1
                add("inventory: learns that the device is clear and without a grant", b)
            if (
                (mine or not o.hold)
                and (s[o.M1 + O - 1] == 2 or not o.ack and s[o.M1 + O - 1])
                and (s[o.SAW] or not o.clear)
            ):
                b = bytearray(s)
                b[0] = W
                b[o.WANT] = 0
                b[o.EPO] += 1
                b[o.M1 + W - 1] = 0
                b[o.SAW] = 0
                add(f"inventory: owner is now cluster {W}, its mark is lifted", b)
        if (s[o.EPV] != s[o.EPO]) if o.version else V != O:
            b = bytearray(s)
            b[1] = O
            b[o.EPV] = s[o.EPO]
            if L == 3 and (s[o.HT] < s[o.EPO] if o.version else not W):
                b[2] = 0
                b[o.HT] = 0
            add(f"placement: hears owner_changed (owner epoch {s[o.EPO]}), drops the hold of an earlier epoch", b)
        return out

    def check(self, s: bytes) -> str | None:
        R, NA = s[3], s[5]
        if R and NA:
            return (
                "I1 managed and native process on one device"
                if R == NA
                else "I1 processes of two clusters on one device"
            )
        if NA and s[0] != NA:
            return "I7 device moved under a native process"
        if R and s[2] != R:
            return "I1 managed process without its line"
        if R and s[0] != R:
            return "I1 managed process through a cluster that is not the owner"
        return None

    def good(self, s: bytes) -> bool:
        return s[2] == 0 and not s[3] and not s[4] and not s[5] and not s[8] and s[0] == s[1]


CONFIGS: dict[str, Model] = {
    "D1 page: rebind at the acknowledgement": Rebind(claim_actual=False),
    "D2 claim carries the devices, no exchange": Rebind(swap=False),
    "D-ok claim carries the devices, exchange": Rebind(),
    "D3 move without a hold in the ledger": Move(hold=False),
    "D3b no hold and owner not checked at the claim": Move(
        hold=False,
        ownercheck=False,
    ),
    "D-own hold, owner not checked at the claim": Move(ownercheck=False),
    "D3c device seen clear before hold and mark": Move(after=False),
    "D4 mark asked but not acknowledged": Move(ack=False, after=False),
    "D5 native process not looked for before the move": Move(clear=False),
    "D6 no device check at start": Move(scan=False),
    "D7 owner facts told apart by value, not version": Move(version=False),
    "D-ok move amended": Move(),
}
