"""What backends do that nobody told them to: they say what is not so, and start work again by themselves."""

import math
from random import Random

from libs.orchestrators.pretend_node import PretendNode, PretendRun
from schemas.calls import FoundState, Launch
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import ExitRecord, RankExit
from tests.simulation.guests import NATIVE
from tests.simulation.nodes import Site


def lie(site: Site, dice: Random) -> bool:
    """Say of a run that goes on that it ended, with or without a record; and again, when it may have been revoked."""
    runs = [(node, run) for node, run in site.running() if run.order.grant != NATIVE]
    if not runs:
        return False
    node, run = dice.choice(runs)
    fact = _false_end(site, node, run, dice.choice((None, 0, 1)))
    site.say(fact)
    site.say_later(dice.choice((0.5, 2.0)), fact)
    return True


def restart(site: Site, dice: Random) -> bool:
    """Start a run again that has ended, or whose processes died just now without a word: it is another instance."""
    runs = [
        (node, key, run)
        for node in site.cluster.nodes.values()
        for key, run in node.runs.items()
        if run.state is not FoundState.WAITING and run.order.grant != NATIVE and not node.silent
    ]
    if not runs:
        return False
    node, key, run = dice.choice(runs)
    run.due = math.inf
    del node.runs[key]
    site.ask(node.id, "launch", Launch(orders=(run.order,)), lambda _: None)
    site.moves += 1
    return True


def _false_end(site: Site, node: PretendNode, run: PretendRun, code: int | None) -> ObservationNoticed:
    order = run.order
    ranks = tuple(RankExit(rank=replica.rank, exit_code=code) for replica in order.replicas)
    now = site.clock.now()
    return ObservationNoticed(
        node=node.id,
        cluster=site.spec.id,
        boot=node.boot,
        grant=order.grant,
        epoch=order.epoch,
        job=order.job,
        attempt=order.attempt,
        run=order.run,
        instance=run.instance,
        event=RunEvent.ENDED,
        exit=None if code is None else ExitRecord(instance=run.instance, ranks=ranks, ended_at=now),
        observed_at=now,
    )
