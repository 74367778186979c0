from typing import Any

from schemas.ids import cluster_id, derive, job_id
from schemas.spec import Document
from schemas.spec.base import Metadata
from schemas.spec.cluster import Cluster, ClusterSpec, NodeSpec
from schemas.spec.gpuclass import GpuClass, GpuClassSpec, Match
from schemas.spec.job import Job, JobSpec, Topology
from schemas.spec.parse import DocumentFault
from schemas.spec.queue import Queue, QueueSpec, Quota
from services.gateway.core.submission import (
    Key,
    Known,
    Outcome,
    Standing,
    Verdict,
    content,
    decide,
    digest,
    faults_of,
    id_of,
    key_of,
    with_tenant,
)

KEY = Key("Job", "acme", "train")


def a_job(*, tenant: str | None = "acme", name: str = "train", **spec: Any) -> Job:
    values = {"queue": "main", "devices_per_replica": 1, "command": ("true",), **spec}
    return Job(metadata=Metadata(name=name, tenant=tenant), spec=JobSpec(**values))


def a_queue(name: str = "main", *, tenant: str = "acme", **nominal: int) -> Queue:
    quotas = tuple(Quota.model_validate({"class": c, "nominal": n}) for c, n in (nominal or {"h100": 8}).items())
    return Queue(metadata=Metadata(name=name, tenant=tenant), spec=QueueSpec(quotas=quotas))


KNOWN = Known(
    tenants={"acme", "zoo"},
    queues={Key("Queue", "acme", "main"): a_queue(), Key("Queue", "zoo", "mine"): a_queue("mine", tenant="zoo")},
    classes={"h100": "NVIDIA H100", "a100": "NVIDIA A100"},
    levels={"rack", "block"},
)


def fault(path: str, message: str, remedy: str) -> DocumentFault:
    return DocumentFault(path=path, message=message, remedy=remedy)


def test_a_new_job_is_created_as_the_first_of_its_name() -> None:
    verdict = decide(KEY, content(a_job()), None, again=False)
    assert verdict == Verdict(Outcome.CREATED, job_id("acme", "train", 1), 1)


def test_the_same_job_again_is_the_same_job() -> None:
    standing = Standing("job_1", 1, content(a_job()))
    for again in (False, True):
        assert decide(KEY, content(a_job()), standing, again=again) == Verdict(Outcome.UNCHANGED, "job_1", 1)


def test_a_job_that_was_kept_before_there_was_a_field_is_the_same_job_without_it() -> None:
    before = content(a_job())
    assert isinstance(before["spec"], dict)
    del before["spec"]["recoveryTimeout"]
    standing = Standing("job_1", 1, before)
    assert decide(KEY, content(a_job()), standing, again=False) == Verdict(Outcome.UNCHANGED, "job_1", 1)
    other = decide(KEY, content(a_job(recovery_timeout=60)), standing, again=False)
    assert [each.path for each in other.faults] == ["spec.recoveryTimeout"]


def test_other_content_under_a_living_name_is_an_error_with_the_fields() -> None:
    standing = Standing("job_1", 1, content(a_job(env={"A": "1"})))
    verdict = decide(KEY, content(a_job(env={"A": "2"}, replicas=2)), standing, again=False)
    assert verdict == Verdict(
        Outcome.ERROR,
        "job_1",
        faults=(
            fault(
                "spec.replicas",
                "job train is alive (job_1) with other content: spec.replicas, spec.env.A",
                "use another name, or cancel it and submit with --again",
            ),
        ),
    )


def test_an_ended_job_is_made_anew_only_when_asked() -> None:
    standing = Standing("job_1", 3, content(a_job()), ended=True)
    assert decide(KEY, content(a_job()), standing, again=False) == Verdict(
        Outcome.ERROR,
        "job_1",
        faults=(
            fault(
                "metadata.name",
                "job train has ended (job_1)",
                "submit with --again for a new one, or use another name",
            ),
        ),
    )
    assert decide(KEY, content(a_job()), standing, again=True) == Verdict(
        Outcome.CREATED, job_id("acme", "train", 4), 4
    )


def test_a_declaration_is_created_then_unchanged_then_changed() -> None:
    key = Key("Queue", "acme", "main")
    identity = derive("queue", "acme", "main")
    before = Standing(identity, 2, content(a_queue()))
    assert decide(key, content(a_queue()), None, again=False) == Verdict(Outcome.CREATED, identity, 1)
    assert decide(key, content(a_queue()), before, again=False) == Verdict(Outcome.UNCHANGED, identity, 2)
    assert decide(key, content(a_queue(h100=9)), before, again=False) == Verdict(Outcome.CHANGED, identity, 3)


def test_a_cluster_has_the_id_that_its_nodes_are_made_from() -> None:
    assert id_of(Key("Cluster", "", "demo"), 7) == cluster_id("demo")


def test_the_order_of_keys_does_not_change_the_digest() -> None:
    one, other = a_job(env={"A": "1", "B": "2"}), a_job(env={"B": "2", "A": "1"})
    assert digest(content(one)) == digest(content(other))
    assert digest(content(one)) != digest(content(a_job()))


def test_a_left_out_tenant_is_filled_in_where_one_belongs() -> None:
    gpu_class = GpuClass(metadata=Metadata(name="h100"), spec=GpuClassSpec(match=Match(model="H")))
    assert key_of(with_tenant(a_job(tenant=None), "acme")) == KEY
    assert key_of(with_tenant(a_job(tenant="zoo"), "acme")) == Key("Job", "zoo", "train")
    assert key_of(with_tenant(gpu_class, "acme")) == Key("GpuClass", "", "h100")


def test_a_good_job_has_no_faults() -> None:
    assert faults_of(a_job(classes=("h100",), topology=Topology(required="rack")), KNOWN) == ()


def test_names_that_nothing_has_are_told_with_the_nearest() -> None:
    assert faults_of(a_job(queue="mian"), KNOWN) == (
        fault("spec.queue", "tenant acme has no queue mian", "did you mean main?"),
    )
    assert faults_of(a_job(tenant="amce"), KNOWN) == (
        fault("metadata.tenant", "there is no tenant amce", "did you mean acme?"),
    )
    assert faults_of(a_job(classes=("h100", "y")), KNOWN) == (
        fault("spec.classes[1]", "class y is not offered in queue main", "known: h100"),
    )
    assert faults_of(a_job(topology=Topology(required="rakc")), KNOWN) == (
        fault("spec.topology.required", "no cluster has a topology level rakc", "did you mean rack?"),
    )
    assert faults_of(a_queue(h10=1), KNOWN) == (
        fault("spec.quotas[0].class", "there is no GpuClass h10", "did you mean h100?"),
    )


def test_a_queue_of_another_tenant_is_unknown() -> None:
    assert faults_of(a_job(queue="mine"), KNOWN) == (
        fault("spec.queue", "tenant acme has no queue mine", "did you mean main?"),
    )


def test_a_job_too_large_for_a_fact_is_refused() -> None:
    (found,) = faults_of(a_job(command=("x" * 30_000,) * 5), KNOWN)
    assert (found.path, found.remedy) == ("", "keep large inputs in files that the job reads")


def test_fleet_wide_kinds_take_no_tenant() -> None:
    cluster = Cluster(metadata=Metadata(name="demo", tenant="acme"), spec=ClusterSpec(backend="local"))
    assert faults_of(cluster, KNOWN) == (
        fault("metadata.tenant", "a Cluster belongs to the whole fleet", "take the tenant out"),
    )


def test_a_device_has_one_class() -> None:
    model = GpuClassSpec(match=Match(model="NVIDIA A100"))
    assert faults_of(GpuClass(metadata=Metadata(name="a100"), spec=model), KNOWN) == ()
    message = "NVIDIA A100 is matched by GpuClass a100, and a device has one class"
    assert faults_of(GpuClass(metadata=Metadata(name="a100-80"), spec=model), KNOWN) == (
        fault("spec.match.model", message, "use a100, or change it first"),
    )


def test_what_comes_in_the_same_text_is_known() -> None:
    node = NodeSpec(name="n1", devices=1, model="x", place={"row": "r1"})
    beside: list[Document] = [
        a_queue("new", b200=1),
        GpuClass(metadata=Metadata(name="b200"), spec=GpuClassSpec(match=Match(model="B"))),
        Cluster(metadata=Metadata(name="c"), spec=ClusterSpec(backend="local", nodes=(node,))),
    ]
    known = KNOWN.with_documents(beside)
    assert faults_of(a_job(queue="new", classes=("b200",), topology=Topology(required="row")), known) == ()
