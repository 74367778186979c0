"""The public trace becomes documents that mean the same, and its curve says what was held."""

import json

from deploy.embedded.demo.openb import curve, documents, lists
from deploy.embedded.demo.openb.lists import Node, Pod, Trace
from deploy.embedded.demo.openb.record import Hold
from deploy.embedded.fleet import read
from schemas.spec.job import Job

NODES = (Node("n1", 96_000, 393_216, 8, "G2"), Node("n2", 16_000, 122_880, 2, "P100"))


def a_pod(name: str = "p1", devices: int = 1, cpu_milli: int = 4_000, *, models: tuple[str, ...] = ()) -> Pod:
    return Pod(name, cpu_milli, 1_024, devices, models, "LS", failed=False, created=50.0, lasted=50.0)


def jobs(*pods: Pod, stretch: float = 1.0) -> list[Job]:
    play = documents.plan(Trace(NODES, pods, len(pods)), seconds=10, stretch=stretch)
    texts = [json.dumps(wish.document) for wish in play.wishes]
    return [found for text in texts for found in read(text, "wish") if isinstance(found, Job)]


def test_a_pod_accepts_the_classes_that_could_hold_it_the_cheapest_first() -> None:
    small, several, thirsty, named = jobs(
        a_pod("p1"), a_pod("p2", 8), a_pod("p3", cpu_milli=20_000), a_pod("p4", models=("G2",))
    )
    assert small.spec.classes == ("p100", "g2")
    assert several.spec.classes == thirsty.spec.classes == named.spec.classes == ("g2",)


def test_times_shrink_together_and_runs_stretch() -> None:
    trace = Trace(NODES, (a_pod(),), 1)
    (wish,) = documents.plan(trace, seconds=10, stretch=3).wishes
    (job,) = jobs(a_pod(), stretch=3)
    assert (wish.at, job.spec.env["PRETEND_SECONDS"]) == (5.0, "15.000000")


def test_a_pod_that_no_node_could_hold_is_left_out_and_named() -> None:
    play = documents.plan(Trace(NODES, (a_pod("big", 9), a_pod()), 2), seconds=10, stretch=1)
    assert (play.impossible, [wish.name for wish in play.wishes]) == (("big",), ["p1"])


def test_quotas_add_up_to_the_fleet() -> None:
    play = documents.plan(lists.read(lists.SAMPLE, "default"), seconds=10, stretch=1)
    held: dict[str, int] = {}
    for text in play.queues.split("\n---\n"):
        for quota in json.loads(text)["spec"]["quotas"]:
            held[quota["class"]] = held.get(quota["class"], 0) + quota["nominal"]
    assert {name: held[name] <= total for name, total in play.stock.items()} == dict.fromkeys(play.stock, True)


def test_the_sample_has_all_models_and_a_few_hundred_pods() -> None:
    trace = lists.read(lists.SAMPLE, "default")
    assert {node.model for node in trace.nodes} == {"A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32"}
    assert 200 < len(trace.pods) < 400


def test_a_curve_says_what_was_held_when() -> None:
    drawn = curve.curves([Hold("g2", 8, 101.0, 105.0), Hold("t4", 1, 103.0, None)], ["g2", "t4"], 100.0)
    assert [drawn["all"].at(second) for second in (0, 1, 3, 5)] == [0, 8, 9, 1]
    assert (drawn["all"].peak, drawn["all"].mean(10)) == (9, (2 * 8 + 2 * 9 + 5 * 1) / 10)
    assert curve.svg(drawn, {"all": 10, "g2": 8, "t4": 2}, 10, "a & b").count("<polygon") == 2
    assert curve.text(drawn, {"all": 10, "g2": 8, "t4": 2}, 10)[0].endswith("peak    9 of   10 (90.0%)")
