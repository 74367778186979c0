"""Model A - fencing on the node. One device, two attempts (grant 1, then grant 2), two run instances an attempt.

The ledger (Postgres) is one atomic object. Everything else is late, doubled, lost or forgetful:
  launch calls (a paused dispatcher, a late backend), retries, backend restarts, agent restarts, lost disk, lost runtime
  folder, reboots, a cut node, force-deleted backend records, stale reports, Redis rollback, a wrong override, a lying BMC.
Options choose the page's rule or the amended one.
"""

from dataclasses import dataclass

from tests.model.explore import Model, Step

G, C, S, N, CLOSED, CLR, SEEN, CUT, OFF, ESC, OV, RD, R, F, REC, PW, BOOT, KB, ENDED, CB, ASK = (
    0,
    2,
    4,
    8,
    12,
    14,
    16,
    17,
    18,
    19,
    20,
    21,
    22,
    23,
    24,
    26,
    27,
    28,
    29,
    30,
    32,
)
SIZE = 36
NONE, ISSUED, CLAIMED, REVOKING, RELEASED = range(5)
NO, CALL, ACCEPTED, SHIM, REPLY, TICKET, RUN, END = range(8)


@dataclass(frozen=True)
class Fence:
    guard: str = "claim"
    release: str = "seal"
    gate: bool = True
    scan: str = "device"
    startscan: bool = True
    power: str = "readback"
    timefree: bool = False
    single: bool = True
    memory: bool = True
    bootbind: bool = True
    weak: bool = True
    override: bool = True
    direct: bool = True
    faults: int = 3
    uniqname: bool = False
    kinds: str = "agent disk reboot cut forget redis override power empty"

    def init(self) -> bytes:
        return bytes(SIZE)

    def show(self, s: bytes) -> str:
        g = ["none", "Issued", "Claimed", "Revoking", "Released"]
        i = ["no", "call", "accepted", "shim", "reply", "ticket", "RUNNING", "end"]
        return (
            f"grants {[g[x] for x in s[G : G + 2]]} runs {[i[x] for x in s[S : S + 4]]} cut={s[CUT]} overridden={s[OV]}"
        )

    def visible(self, s: bytes, x: int) -> bool:  # does the agent of now see instance x as a user of the device?
        st = s[S + x]
        if st == RUN:
            return self.scan == "device" or s[N + x] == 1
        if st in (REPLY, TICKET):  # start allowed, first process not there yet
            if self.gate:
                return not s[RD]  # the lock file shows it, unless the runtime folder was lost
            return s[N + x] == 1  # else only the agent's own memory
        return False

    def succ(self, s: bytes) -> list[Step]:
        o = self
        out: list[Step] = []

        def add(label: str, b: bytearray, fault: bool = False) -> None:
            for k in (0, 1):
                if b[G + k] == RELEASED != s[G + k] and o.guard == "floor" and not s[CUT]:
                    b[SEEN] = max(s[SEEN], k + 2)  # node told at release
                if b[G + k] == RELEASED != s[G + k] and b[R] == k + 1:
                    b[R] = 0  # release deletes the lease
            if fault:
                b[F] += 1
            out.append((label, bytes(b), fault))

        fault_ok = s[F] < o.faults
        for k in (0, 1):
            g = s[G + k]
            name = k + 1
            # --- ledger
            if g == NONE and (k == 0 or s[G] == RELEASED):
                b = bytearray(s)
                b[G + k] = ISSUED
                b[R] = name
                if o.guard in ("push", "floor") and not s[CUT]:
                    b[SEEN] = max(b[SEEN], name)
                add(f"ledger: grant {name} issued, epoch {name}", b)
            if g in (ISSUED, CLAIMED):
                b = bytearray(s)
                if o.guard == "claim" and g == ISSUED and o.direct:
                    b[G + k] = RELEASED
                    lab = f"ledger: grant {name} revoked before any start was allowed -> Released"
                else:
                    b[G + k] = REVOKING
                    lab = f"ledger: grant {name} revoked or run ended -> Revoking"
                add(lab, b)
            # --- dispatch: may wake up at any time after the grant was issued
            if g != NONE and s[S + 2 * k] == NO:
                b = bytearray(s)
                b[S + 2 * k] = CALL
                add(f"dispatch: launch call for attempt {name} leaves", b)
            if s[S + 2 * k] == CALL and s[S + 2 * k + 1] == NO:
                b = bytearray(s)
                b[S + 2 * k + 1] = CALL
                add(f"dispatch: no answer, find says nothing, second launch call for attempt {name}", b)
            if "empty" in o.kinds and fault_ok and ACCEPTED <= s[S + 2 * k] <= RUN and s[S + 2 * k + 1] == NO:
                b = bytearray(s)
                b[S + 2 * k + 1] = CALL
                add(f"FAULT backend lists nothing after a restart, dispatch launches attempt {name} again", b, True)
            if s[S + 2 * k] == END and s[S + 2 * k + 1] == NO:
                b = bytearray(s)
                b[S + 2 * k + 1] = ACCEPTED
                add(f"backend: restarts run {name} by itself, same epoch", b)
            if (
                "forget" in o.kinds
                and fault_ok
                and not s[REC + k]
                and any(ACCEPTED <= s[S + 2 * k + j] <= RUN for j in (0, 1))
            ):
                b = bytearray(s)
                b[REC + k] = 1
                add(f"FAULT record of run {name} deleted at the backend", b, True)
            # --- release
            ended = s[REC + k] or all(s[S + 2 * k + j] in (NO, CALL, END) for j in (0, 1))
            if o.release == "report":
                if g in (ISSUED, CLAIMED, REVOKING) and ended and s[CLR]:
                    b = bytearray(s)
                    b[CLR] = 0
                    b[G + k] = RELEASED
                    add(f'ledger: backend says ended, agent report "no process" arrives -> grant {name} Released', b)
            elif o.release == "report-now":  # like the page, but the report is never stale
                if g == REVOKING and ended and not s[CUT] and not s[OFF] and not any(o.visible(s, x) for x in range(4)):
                    b = bytearray(s)
                    b[G + k] = RELEASED
                    add(f"ledger: backend says ended and agent sees no process now -> grant {name} Released", b)
            elif o.release == "seal":
                if (
                    g == REVOKING
                    and not s[CUT]
                    and not s[OFF]
                    and not (s[CLOSED + k] if o.memory else s[CLR + k])
                    and not s[RD]
                    and not any(o.visible(s, 2 * k + j) for j in (0, 1))
                ):
                    b = bytearray(s)
                    b[CLOSED + k] = 1 if o.memory else 0
                    b[CLR + k] = 1
                    add(f"agent: seals epoch {name}: nothing of it here, and none will start", b)
                if g == REVOKING and s[CLR + k] and not s[CUT]:
                    b = bytearray(s)
                    b[CLR + k] = 0
                    b[G + k] = RELEASED
                    add(f"ledger: seal of epoch {name} -> grant {name} Released", b)
            if o.timefree and g == REVOKING and s[CUT]:
                b = bytearray(s)
                b[G + k] = RELEASED
                add(f"ledger: node silent for long enough -> grant {name} Released", b)
            if g == REVOKING and (s[CUT] or s[OFF] or s[RD]) and not s[ESC]:
                b = bytearray(s)
                b[ESC] = 1
                add("ledger: no proof in time -> escalated", b)
            if o.override and "override" in o.kinds and fault_ok and g == REVOKING and s[ESC] and not s[OV]:
                b = bytearray(s)
                b[G + k] = RELEASED
                b[OV] = 1
                b[ESC] = 0
                add(f"FAULT a person frees grant {name} by override, wrongly", b, True)
            if g == REVOKING and s[PW] and not o.bootbind:
                b = bytearray(s)
                b[G + k] = RELEASED
                b[ESC] = 0
                b[PW] = 0
                add(f'ledger: message "node went off / rebooted" -> grant {name} Released', b)
            if g == REVOKING and o.bootbind and s[C + k] and s[ENDED] >> s[CB + k] & 1:
                b = bytearray(s)
                b[G + k] = RELEASED
                b[ESC] = 0
                add(f"ledger: the boot under which grant {name} was claimed has ended -> Released", b)
        # --- instances
        for x in range(4):
            k, st = x >> 1, s[S + x]
            run = f"{k + 1}{'ab'[x & 1]}"
            if st == CALL:
                if not (o.uniqname and ACCEPTED <= s[S + (x ^ 1)] <= RUN):
                    b = bytearray(s)
                    b[S + x] = ACCEPTED
                    add(f"backend: accepts run {run}", b)
                b = bytearray(s)
                b[S + x] = END
                add(f"network: launch call {run} lost or refused", b)
            elif st == ACCEPTED and not s[OFF]:
                b = bytearray(s)
                b[S + x] = SHIM
                add(f"node: run {run} arrives at the launch guard", b)
            elif st == SHIM and not s[OFF]:
                others = any(
                    s[S + y] == RUN or (o.gate and s[S + y] in (REPLY, TICKET) and not s[RD])
                    for y in range(4)
                    if y != x
                )
                if o.startscan and others:
                    # with the lock file (gate) a newcomer must not go on; it ends as refused
                    b = bytearray(s)
                    b[S + x] = END
                    add(f"guard: device not clear, run {run} refused", b)
                elif o.guard in ("seen", "push", "floor"):
                    b = bytearray(s)
                    if k + 1 >= s[SEEN]:
                        b[SEEN] = k + 1
                        b[S + x] = RUN
                        b[N + x] = 1
                        add(f"guard: epoch {k + 1} >= last seen, run {run} starts", b)
                    else:
                        b[S + x] = END
                        add(f"guard: epoch {k + 1} is old, run {run} refused", b)
                elif o.guard == "redis":
                    b = bytearray(s)
                    if s[R] == k + 1:
                        b[S + x] = RUN
                        b[N + x] = 1
                        add(f"guard: lease in Redis names epoch {k + 1}, run {run} starts", b)
                    else:
                        b[S + x] = END
                        add(f"guard: lease names another, run {run} refused", b)
                elif o.guard == "check" and not s[CUT]:
                    b = bytearray(s)
                    if s[G + k] in (ISSUED, CLAIMED):
                        b[S + x] = REPLY
                        b[N + x] = 1
                        add(f'ledger: answers guard "grant {k + 1} is live" to run {run}', b)
                    else:
                        b[S + x] = END
                        add(f'ledger: answers "grant {k + 1} is over", run {run} refused', b)
                elif o.guard == "claim" and not s[RD]:
                    b = bytearray(s)  # the lock file (gate) is held from here on
                    b[S + x] = REPLY
                    b[N + x] = 2
                    b[ASK + x] = s[BOOT] + 1
                    add(f"guard: takes the device lock, run {run} asks to start", b)
            elif st == REPLY:
                b = bytearray(s)
                if not s[N + x]:
                    b[S + x] = SHIM
                    add(f"agent: answer for run {run} would belong to an earlier agent; run {run} must ask again", b)
                elif o.memory and s[CLOSED + k]:
                    b[S + x] = END
                    add(f"agent: epoch sealed, run {run} ends", b)
                elif s[N + x] == 1 and not s[CUT]:
                    b[S + x] = TICKET
                    add(f"agent: hands the permission to run {run}", b)
            elif st == TICKET:
                b = bytearray(s)
                b[S + x] = RUN
                add(f"node: first user process of run {run} starts", b)
            elif st == RUN:
                b = bytearray(s)
                b[S + x] = END
                add(f"node: run {run} ends", b)
            if s[ASK + x] and not s[CUT]:
                b = bytearray(s)
                b[ASK + x] = 0
                g = s[G + k]
                boot = s[ASK + x] - 1
                waiting = st == REPLY and s[N + x] == 2 and boot == s[BOOT]
                again = g == CLAIMED and (
                    s[C + k] == (x & 1) + 1 and s[CB + k] == boot or (not o.single and s[S + (x ^ 1)] in (END, NO))
                )
                late = o.bootbind and (s[ENDED] >> boot & 1)
                if (g == ISSUED or again) and not late:
                    b[G + k] = CLAIMED
                    b[C + k] = (x & 1) + 1
                    b[CB + k] = boot
                    if o.bootbind and boot > s[KB]:
                        b[KB] = boot
                        b[ENDED] |= (1 << boot) - 1
                    if waiting:
                        b[N + x] = 1
                    add(f"ledger: start of run {run} allowed, grant {k + 1} Claimed", b)
                else:
                    if waiting:
                        b[S + x] = END
                    add(f"ledger: start of run {run} refused", b)
            # stop: by the backend (not on a cut node), or by the agent on an order that names the grant
            if s[G + k] in (REVOKING, RELEASED) and ACCEPTED <= st <= RUN and not s[CUT]:
                if not s[REC + k] or st >= SHIM:
                    b = bytearray(s)
                    b[S + x] = END
                    add(f"dispatch/agent: stops run {run} (grant {k + 1} is over)", b)
        # --- node, network
        if fault_ok:
            if "agent" in o.kinds:
                b = bytearray(s)
                b[N : N + 4] = bytes(4)
                b[CLOSED : CLOSED + 2] = bytes(2)
                add("FAULT agent restarts (memory lost, processes live on)", b, True)
            if "disk" in o.kinds and not s[RD]:
                b = bytearray(s)
                b[N : N + 4] = bytes(4)
                b[CLOSED : CLOSED + 2] = bytes(2)
                b[SEEN] = 0
                b[RD] = 1 if o.gate else 0
                add("FAULT agent reinstalled, disk and runtime folder lost, same boot", b, True)
            if "reboot" in o.kinds and not s[OFF] and s[BOOT] < 2:
                b = bytearray(s)
                b[N : N + 4] = bytes(4)
                b[CLOSED : CLOSED + 2] = bytes(2)
                b[RD] = 0
                b[BOOT] += 1
                if not o.bootbind:
                    b[PW] = 1
                for x in range(4):
                    if SHIM <= s[S + x] <= RUN:
                        b[S + x] = END
                add("FAULT node reboots", b, True)
            if "cut" in o.kinds and not s[CUT]:
                b = bytearray(s)
                b[CUT] = 1
                add("FAULT node cut off", b, True)
            if "redis" in o.kinds and o.guard == "redis" and s[R] > 1:
                b = bytearray(s)
                b[R] = s[R] - 1
                add("FAULT Redis fails over to an older state", b, True)
            if "redis" in o.kinds and o.guard == "redis" and not s[R] and s[G] == RELEASED:
                b = bytearray(s)
                b[R] = 1
                add("FAULT Redis fails over to an older state: the lease of grant 1 is there again", b, True)
            if "power" in o.kinds and s[CUT] and not s[OFF] and o.power == "command" and not s[PW]:
                b = bytearray(s)
                b[ENDED] |= (2 << s[KB]) - 1
                b[PW] = 1
                add("FAULT BMC accepts the command and does nothing; taken as power-off", b, True)
        if o.bootbind and not s[CUT] and not s[OFF] and s[KB] < s[BOOT]:
            b = bytearray(s)
            b[KB] = s[BOOT]
            b[ENDED] |= (1 << s[BOOT]) - 1
            add("agent: hello under a new boot; the ledger records that earlier boots ended", b)
        if fault_ok and "pgback" in o.kinds:
            for k in (0, 1):
                if s[G + k] == CLAIMED:
                    b = bytearray(s)
                    b[G + k] = ISSUED
                    b[C + k] = 0
                    add(f"FAULT Postgres restored to before the claim of grant {k + 1}", b, True)
                if s[G + k] == RELEASED and s[G + 1] == NONE:
                    b = bytearray(s)
                    b[G + k] = ISSUED
                    b[C + k] = 0
                    add(f"FAULT Postgres restored to before the end of grant {k + 1}", b, True)
        if s[CUT] and not s[OFF]:
            b = bytearray(s)
            b[CUT] = 0
            add("network: node is back", b)
        if "power" in o.kinds and o.power == "readback" and s[CUT] and not s[OFF] and not s[PW] and s[BOOT] < 2:
            b = bytearray(s)
            b[OFF] = 1
            b[PW] = 1
            b[ENDED] |= (2 << s[KB]) - 1
            for x in range(4):
                if SHIM <= s[S + x] <= RUN:
                    b[S + x] = END
            b[N : N + 4] = bytes(4)
            b[CLOSED : CLOSED + 2] = bytes(2)
            add("operator: BMC reads back power off", b)
        if s[OFF]:
            b = bytearray(s)
            b[OFF] = 0
            b[CUT] = 0
            b[RD] = 0
            b[BOOT] += 1
            add("node: powered on again (new boot)", b)
        if o.release == "report" and not s[CLR] and not s[CUT] and not any(o.visible(s, x) for x in range(4)):
            b = bytearray(s)
            b[CLR] = 1
            add('agent: report "no process on the device" leaves', b)
        return out

    def check(self, s: bytes) -> str | None:
        r1 = RUN in s[S : S + 2]
        r2 = RUN in s[S + 2 : S + 4]
        if r1 and r2:
            return "I1 two attempts on one device"
        if not self.weak:
            return None
        if s[S : S + 2].count(RUN) == 2 or s[S + 2 : S + 4].count(RUN) == 2:
            return "I4 one attempt runs twice at once"
        if not s[OV] and ((r1 and s[G] == RELEASED) or (r2 and s[G + 1] == RELEASED)):
            return "I1 process on a device that is Free"
        if 0 < s[G] < RELEASED and 0 < s[G + 1] < RELEASED:
            return "I1 two live grants"
        return None

    def good(self, s: bytes) -> bool:
        if s[ESC]:
            return True
        return s[G] == RELEASED and s[G + 1] == RELEASED and all(v in (NO, END) for v in s[S : S + 4])


CONFIGS: dict[str, Model] = {
    # the page, read in its different ways
    "A1 guard: not older than last seen": Fence(
        guard="seen", release="report-now", gate=False, startscan=False, faults=0
    ),
    "A1b same, only two-at-once counts": Fence(
        guard="seen", release="report-now", gate=False, startscan=False, faults=0, weak=False
    ),
    "A2 same + busy device refuses": Fence(guard="seen", release="report-now", gate=False, startscan=True, faults=0),
    "A3 newest epoch pushed to the node at issue": Fence(
        guard="push", release="report-now", gate=False, startscan=False, faults=0, weak=False
    ),
    "A3b pushed at issue and at release, disk lost": Fence(
        guard="floor", release="report-now", gate=False, startscan=False, faults=1, kinds="disk", weak=False
    ),
    "A3c pushed at both, agent restart, record gone": Fence(
        guard="floor",
        release="report-now",
        gate=False,
        scan="children",
        startscan=False,
        faults=2,
        kinds="agent forget",
        weak=False,
    ),
    "A3d pushed at both, no fault": Fence(
        guard="floor", release="report-now", gate=False, startscan=False, faults=0, weak=False
    ),
    "A4 guard asks the Redis lease": Fence(
        weak=False, guard="redis", release="report-now", gate=False, startscan=False, faults=1, kinds="redis"
    ),
    "A5 guard asks ledger, nothing recorded": Fence(
        weak=False, guard="check", release="report-now", gate=False, startscan=True, faults=2, kinds="forget agent"
    ),
    "A5b same, doubled launch": Fence(guard="check", release="report-now", gate=False, startscan=False, faults=0),
    "A6 claim, but an untied report as proof": Fence(
        guard="claim", release="report", gate=True, startscan=True, faults=1, kinds="forget"
    ),
    "A7 claim+seal, agent sees its children only": Fence(gate=True, scan="children", faults=1, kinds="agent"),
    "A8 claim+seal, no device lock": Fence(gate=False, faults=1, kinds="agent"),
    "A9 free by time alone": Fence(timefree=True, faults=1, kinds="cut"),
    "A10 free because BMC took the command": Fence(power="command", faults=2, kinds="cut power"),
    "A11 boot/power evidence not tied to a boot": Fence(bootbind=False, faults=1, kinds="reboot"),
    "A12 override, no device check at start": Fence(startscan=False, faults=2, kinds="cut override"),
    # the amended protocol and two harmless variants of it
    "A-ok amended, 1 fault": Fence(faults=1),
    "A-ok amended, 2 faults": Fence(faults=2),
    "A-restart in place allowed, 2 faults": Fence(single=False, faults=2),
    "A-noshort no direct release, 2 faults": Fence(direct=False, faults=2),
    "A-mem2 agent keeps no memory of seals, 2 faults": Fence(memory=False, faults=2),
    "A-pg Postgres loses a commit, two-at-once only": Fence(
        memory=False, faults=2, weak=False, kinds="pgback agent forget cut empty"
    ),
    "A-pg2 same, no device check at start": Fence(
        faults=2, weak=False, startscan=False, kinds="pgback agent forget cut empty"
    ),
    "A-mem3 no memory of seals, 3 faults": Fence(memory=False, faults=3),
    "A-big amended, 3 faults": Fence(faults=3),
}
