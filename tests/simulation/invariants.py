"""I1 to I10 in the world of a simulation: cheap checks after every step, all of them every hundred steps.

The judge of I1 is the pretended cluster: what really runs, whatever any service believes.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from libs.orchestrators.pretend_node import PretendNode, PretendRun
from schemas.base import Envelope, Event
from schemas.calls import FoundState
from schemas.ids import DeviceId, GrantId, JobId
from schemas.lifecycle import JobState, PartState
from schemas.reasons import Code
from schemas.workload import (
    GrantIssued,
    GrantReleased,
    GrantRevoked,
    JobAdmitted,
    JobCancelled,
    JobEvicted,
    JobFinished,
    JobQueued,
    JobRejected,
    JobRequeued,
    Outcome,
    ReleaseProof,
    RunAccepted,
    RunFailed,
    RunLaunched,
    RunLost,
    RunStarted,
    RunStopped,
    RunSucceeded,
)
from services.admission.core import Job, Queue
from services.admission.core.evolve import booked
from tests.simulation.comebacks import check_times
from tests.simulation.guests import NATIVE, natives
from tests.simulation.moves_judge import MovesJudge
from tests.simulation.nodes import Site
from tests.simulation.plans import Plans
from tests.simulation.stage import Stage
from tests.simulation.store import BreachError

ONCE: Final = (
    JobQueued,
    JobAdmitted,
    JobEvicted,
    JobRequeued,
    GrantIssued,
    GrantRevoked,
    RunLaunched,
    RunAccepted,
    RunStarted,
)
RESULTS: Final = (RunSucceeded, RunFailed, RunStopped, RunLost)
ENDS: Final = (JobFinished, JobCancelled, JobRejected)
VERSIONED: Final = frozenset({"admission", "placement", "dispatch", "inventory"})
LAST: Final = 20  # facts that are remembered for whoever reads of a breach
HOLDS: Final = frozenset({PartState.CLAIMED, PartState.REVOKING})


class Judge:
    """Looks at a stage after every step. Raises BreachError."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._read = {store.name: 0 for store in stage.stores}
        self._said: set[tuple[object, ...]] = set()
        self._versions: dict[tuple[str, str], int] = {}
        self._ended: set[JobId] = set()
        self._results: set[tuple[JobId, int, bool]] = set()
        self._epochs: Mapping[DeviceId, int] = {}
        self._seen: tuple[object, ...] = ()
        self._plans = Plans()
        self.moves = MovesJudge(stage)
        self.parts_alone = 0
        """Parts that were proved free while others of their gang went on."""
        self.last: deque[tuple[float, Envelope]] = deque(maxlen=LAST)

    def step(self) -> None:
        """Check what the last step may have broken."""
        facts = list(self._new_facts())
        self.last.extend((self._stage.ground.timeline.now, envelope) for envelope in facts)
        seen = (self._stage.ledger, self._stage.admission_view, sum(site.moves for site in self._stage.sites))
        changed = any(now is not before for now, before in zip(seen, self._seen or (None, None, None), strict=True))
        self._seen = seen
        if changed:
            self._check_running()
            self._check_charges()
            self.moves.check()
            self._plans.check(self._stage.admission_view)
        for envelope in facts:
            self._plans.hear(envelope.data)
            self.moves.hear(envelope.data)
            self._check_fact(envelope)

    def remember(self) -> Callable[[], None]:
        """Return what brings back all that is known now of what services said: for the restore of a backup."""
        said, ended, results = set(self._said), set(self._ended), set(self._results)
        read, versions, epochs = dict(self._read), dict(self._versions), self._epochs

        def recall() -> None:
            self._said, self._ended, self._results = set(said), set(ended), set(results)
            self._read, self._versions, self._epochs = dict(read), dict(versions), epochs

        return recall

    def all(self) -> None:
        """Check everything that holds at any moment."""
        self._check_running()
        self._check_charges()
        self._check_lines()
        self._check_sums()
        self._check_reasons()
        self._check_leases()
        check_times(self._stage.ledger, self._stage.replicas[0].store.clock.now())

    # I1

    def _check_running(self) -> None:
        held: dict[DeviceId, str] = {}
        for site in self._stage.sites:
            for node, run in site.running():
                for device in run.devices:
                    if device in held:
                        raise BreachError(f"I1: {run.order.run} and {held[device]} run on one device of {node.name}")
                    held[device] = run.order.run
                if run.order.grant != NATIVE:
                    self._check_claimed(node, run)
            self._check_natives(site)

    def _check_claimed(self, node: PretendNode, run: PretendRun) -> None:
        if run.instance in self._stage.forgotten:
            return
        grant = self._stage.ledger.grants.get(run.order.grant)
        part = grant.part(node.id) if grant else None
        if part is None or part.state not in HOLDS or set(part.device_ids) != set(run.devices):
            if run.order.grant not in self._stage.overridden:
                raise BreachError(f"I1: {run.order.run} runs on {node.name}; the ledger says {part}")
        elif (part.instance, part.boot) != (run.instance, node.boot):
            raise BreachError(f"I4: {run.instance} runs on {node.name}; {part.instance} has the claim")

    def _check_natives(self, site: Site) -> None:
        """What nobody granted is nobody's to stop (G7)."""
        for node in site.cluster.nodes.values():
            for run in natives(node):
                if run.kill_signal is not None:
                    raise BreachError(f"I7: {run.order.run} on {node.name} is stopped, which no ledger has heard of")

    def _check_lines(self) -> None:
        """Lines are those of live parts, and a gang that is not revoked holds all its devices (I3); epochs rise."""
        ledger = self._stage.ledger
        lines = {d: (grant.id, part.node) for part, grant in ledger.live_parts() for d in part.device_ids}
        if lines != ledger.lines:
            raise BreachError(f"I1: lines and live parts differ: {sorted(lines.items() ^ ledger.lines.items())}")
        for grant in map(ledger.grants.__getitem__, ledger.live):
            pending = ledger.attempts.rows[grant.job, grant.attempt].pending
            held = sum(len(part.devices) for part in grant.parts if part.live or part.revocation)
            if grant.revoked_at is None and (pending is None or held != pending.demand.devices):
                raise BreachError(f"I3: {grant.id} holds {held} devices of {pending}")
        epochs = {device: entry.last_epoch for device, entry in ledger.fleet.devices.items()}
        if any(epochs[device] < epoch for device, epoch in self._epochs.items()):
            raise BreachError("I1: the epoch of a device went back")
        self._epochs = epochs

    # I2

    def _check_charges(self) -> None:
        """Every live grant is charged, and no queue is charged over its quota."""
        view = self._stage.admission_view
        for grant in map(self._stage.ledger.grants.__getitem__, self._stage.ledger.live):
            charge = view.charges.get((grant.job, grant.attempt))
            forgotten = grant.reason is not None and grant.reason.code is Code.LEDGER_BEHIND
            charged = 0 if charge is None or charge.over else charge.held
            held = sum(len(part.devices) for part in grant.parts if part.live)
            if charged < held and not forgotten:
                raise BreachError(f"I2: {grant.id} of {grant.name} holds {held} devices and is charged {charge}")
        for (key, gpu_class), used in view.used.items():
            queue = view.queues.get(key)
            if queue is None or not 0 <= used <= queue.nominal.get(gpu_class, 0):
                raise BreachError(f"I2: {key.name} is charged {used} {gpu_class}")

    def _check_sums(self) -> None:
        view = self._stage.admission_view
        sums = dict.fromkeys(view.used, 0)
        for charge in view.charges.values():
            sums[charge.queue, charge.gpu_class] += booked(charge)
            job = view.jobs[charge.job]
            if booked(charge) and charge.attempt < job.attempt and job.state is JobState.ADMITTED:
                raise BreachError(f"I2: attempt {job.attempt} of {job.name} is admitted beside {charge}")
        if sums != view.used:
            raise BreachError(f"I2: {sums} are charged, and the books say {view.used}")

    # I4, I5, I7

    def _new_facts(self) -> Iterator[Envelope]:
        for store in self._stage.stores:
            said, read = store.said, self._read[store.name]
            self._read[store.name] = len(said)
            yield from said[read:]

    def _check_fact(self, envelope: Envelope) -> None:
        fact = envelope.data
        if isinstance(fact, ONCE):
            self._once(envelope.type, fact.job, fact.attempt)
        if isinstance(fact, RESULTS):
            self._once("result", fact.run)
        if isinstance(fact, RunSucceeded | RunFailed):
            self._results.add((fact.job, fact.attempt, isinstance(fact, RunSucceeded)))
        self._check_grant(fact)
        if envelope.source == "admission":
            self._check_job(envelope)
        if envelope.source in VERSIONED:
            self._check_version(envelope)

    def _check_grant(self, fact: Event) -> None:
        match fact:
            case GrantIssued():
                self._check_issue(fact)
            case GrantReleased():
                self._check_release(fact)
            case GrantRevoked() if fact.reason.code is Code.NODE_LOST:
                self._check_silence(fact)

    def _check_job(self, envelope: Envelope) -> None:
        """A job has one end, which nothing follows, and the result of its own last attempt (I5)."""
        fact = envelope.data
        job = JobId(envelope.key)
        if job in self._ended:
            raise BreachError(f"I5: {envelope.type} is said of {job} after its end")
        if isinstance(fact, ENDS):
            self._ended.add(job)
        if isinstance(fact, JobFinished):
            self._check_result(fact)

    def _check_result(self, fact: JobFinished) -> None:
        if (fact.job, fact.attempt, fact.outcome is Outcome.SUCCEEDED) not in self._results:
            raise BreachError(f"I5: {fact.job} has the result of another attempt than {fact.attempt}")

    def _once(self, *what: object) -> None:
        if what in self._said:
            raise BreachError(f"I4: said twice: {what}")
        self._said.add(what)

    def _check_version(self, envelope: Envelope) -> None:
        if envelope.type.startswith("workload.grant.refused"):
            return
        key = (envelope.source, envelope.key)
        if envelope.version != self._versions.get(key, 0) + 1:
            raise BreachError(f"I4: {envelope.type} of {envelope.key} has version {envelope.version}")
        self._versions[key] = envelope.version

    def _check_issue(self, fact: GrantIssued) -> None:
        """Nothing is granted where something that was granted still runs (I7)."""
        devices = {device.device for part in fact.parts for device in part.devices}
        for run in [run for site in self._stage.sites for _, run in site.running()]:
            order, known = run.order, run.order.grant == NATIVE or run.order.grant in self._stage.overridden
            if not known and (order.grant, order.epoch) != (fact.grant, fact.epoch) and devices & set(run.devices):
                raise BreachError(f"I7: {fact.grant} is given devices on which {order.run} runs")

    def _check_release(self, fact: GrantReleased) -> None:
        """Unknown is not free (I7): what was claimed is released on proof, and that proof is true."""
        never = fact.proof is ReleaseProof.NEVER_CLAIMED
        if fact.claimed == never and (never or not self._stage.era):
            raise BreachError(f"I7: {fact.grant} on {fact.node} is released as {fact.proof.value}")
        self.parts_alone += fact.alone
        part = self._stage.ledger.grants[GrantId(fact.grant)].part(fact.node)
        node = next(site.cluster.nodes[fact.node] for site in self._stage.sites if fact.node in site.cluster.nodes)
        if fact.proof is ReleaseProof.BOOT_ENDED and part is not None and part.boot == node.boot:
            raise BreachError(f"I7: {fact.grant} is released since {part.boot} ended, which goes on")
        of = (fact.grant, fact.epoch, FoundState.RUNNING)
        waits = [run for run in node.runs.values() if (run.order.grant, run.order.epoch, run.state) == of]
        if waits and fact.proof is not ReleaseProof.OVERRIDE:
            raise BreachError(f"I7: {fact.grant} is released by {fact.proof.value} while it runs on {node.name}")

    def _check_silence(self, fact: GrantRevoked) -> None:
        """A node was given up only after it could have been heard for long, and was not."""
        now, broker = self._stage.ground.timeline.now, self._stage.ground.broker
        since = [self._stage.heard.get(part.node, 0.0) for part in self._stage.ledger.grants[fact.grant].parts]
        longest = max(now - at - broker.away_seconds(at) for at in since)
        if longest < self._stage.replicas[0].settings.node_lost_after_seconds - 0.1:
            raise BreachError(f"I7: {fact.grant} is ended for a node's silence of {longest:.1f} s")

    # I9

    def _check_reasons(self) -> None:
        """Who waits is told why, with numbers that are those of now."""
        view = self._stage.admission_view
        for job in view.jobs.values():
            if job.state is JobState.QUEUED and job.version:
                self._check_reason(job, view.queues.get(job.queue))

    def _check_reason(self, job: Job, queue: Queue | None) -> None:
        why = job.reason
        if why is None or why.code is Code.UNKNOWN:
            raise BreachError(f"I9: {job.name} waits without a reason")
        if job.not_before is None and why.code in {Code.WAITING_FOR_QUOTA, Code.EXCEEDS_QUOTA}:
            nominal = queue.nominal.values() if queue else ()
            if why.numbers.get("nominal") not in nominal or why.numbers.get("asked") != job.demand.devices:
                raise BreachError(f"I9: {job.name} waits for {why}, and its queue is {queue}")

    # I10

    def _check_leases(self) -> None:
        """No lease stands above the ledger, and nobody took one for a ledger that went back."""
        ledger = self._stage.ledger
        if ledger.stops and not self._stage.era:
            raise BreachError(f"I10: grants are stopped although the ledger never went back: {ledger.stops}")
        for lease in self._stage.leases.held():
            if lease.epoch > ledger.fleet.devices[DeviceId(lease.device)].last_epoch:
                raise BreachError(f"I10: {lease} stands above the ledger")
