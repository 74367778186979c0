"""Model E - may time alone fence a node? Whole ticks. The node kills everything K node-ticks after the last answered ask
(counted from the moment it ASKED, or from the moment the answer ARRIVED); killing takes up to D ticks; the node's clock may
miss up to Q ticks; answers travel for any time. The ledger frees the device W ticks after the last answer it SENT."""

from dataclasses import dataclass

from tests.model.explore import Model, Step


@dataclass(frozen=True)
class Time:
    count: str = "ask"
    W: int = 4
    K: int = 2
    D: int = 1
    Q: int = 1
    agentdies: bool = False
    watchdog: bool = False
    horizon: int = 14

    # 0 T, 1 last answer sent at, 2 ask under way (node age of the ask +1), 3 answer under way (age+1), 4 node ticks left, 5 missed, 6 kill left+1 (0 = not killing), 7 alive, 8 agent dead, 9 freed
    def init(self) -> bytes:
        return bytes([0, 0, 0, 0, self.K, 0, 0, 1, 0, 0])

    def show(self, s: bytes) -> str:
        return f"t={s[0]} last answer sent t={s[1]} node countdown={s[4]} freed={s[9]} process alive={s[7]}"

    def succ(self, s: bytes) -> list[Step]:
        o = self

        def mk(**kw: int) -> bytes:
            b = bytearray(s)
            for k, v in kw.items():
                b[int(k[1:])] = v
            return bytes(b)

        out: list[Step] = []
        killer = not s[8] or o.watchdog
        if s[0] < o.horizon:
            for miss in (0, 1) if s[5] < o.Q else (0,):
                b = bytearray(s)
                b[0] += 1
                b[5] += miss
                if s[7] and killer:
                    if s[6] == 0:
                        if not miss:
                            b[4] -= 1
                        for i in (2, 3):
                            if s[i] and not miss:
                                b[i] += 1
                        if b[4] == 0:
                            b[6] = o.D + 1
                    else:
                        b[6] -= 1
                    if b[6] == 1:
                        b[7] = 0
                        b[6] = 0
                out.append(("one tick" + (", node clock misses it" if miss else ""), bytes(b), False))
        if s[7] and not s[8] and not s[6] and not s[2] and not s[3]:
            out.append(("node asks", mk(_2=1), False))
        if s[2] and not s[9]:
            out.append(("ledger answers", mk(_1=s[0], _3=s[2], _2=0), False))
        if s[2]:
            out.append(("ask lost", mk(_2=0), False))
        if s[3]:
            out.append(("answer lost", mk(_3=0), False))
            if not s[8] and s[7] and not s[6]:
                left = o.K if o.count == "receipt" else o.K - (s[3] - 1)
                if left > 0:
                    out.append(("answer arrives", mk(_3=0, _4=max(s[4], left)), False))
        if o.agentdies and not s[8]:
            out.append(("agent dies", mk(_8=1), False))
        if not s[9] and s[0] - s[1] >= o.W:
            out.append(("ledger frees the device", mk(_9=1), False))
        return out

    def check(self, s: bytes) -> str | None:
        return "I1 freed while a process lives" if s[9] and s[7] else None

    def good(self, s: bytes) -> bool:
        return True


CONFIGS: dict[str, Model] = {
    "E1 counted from receipt, W = K+Q+D": Time(count="receipt", W=4),
    "E1b counted from receipt, W = 2K+Q+D": Time(count="receipt", W=6),
    "E2 counted from the ask, W = K+D (no drift term)": Time(W=3),
    "E3 agent dies, no watchdog": Time(W=9, agentdies=True),
    "E-ok from the ask, W = K+Q+D": Time(W=4),
    "E-ok same, agent may die, hardware watchdog": Time(W=4, agentdies=True, watchdog=True),
}
