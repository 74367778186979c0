from pathlib import Path

from deploy.embedded.demo import plan


def test_the_documents_can_be_read_and_show_every_kind_of_ending() -> None:
    jobs = {job.metadata.name: job for job in plan.jobs(Path("/srv/demo"))}
    devices = {name: job.spec.replicas * job.spec.devices_per_replica for name, job in jobs.items()}
    assert len(jobs) >= 30
    assert {job.spec.workdir for job in jobs.values()} == {"/srv/demo"}
    assert set(plan.ODD) <= set(jobs)
    assert (min(devices.values()), max(devices.values())) == (1, 16)


def test_three_tenants_have_queues_with_quotas() -> None:
    assert plan.quotas() == {("research", "nlp"): 20, ("product", "serving"): 12, ("teaching", "labs"): 6}


def test_every_queue_is_asked_for_more_than_its_quota() -> None:
    asked: dict[tuple[str, str], int] = {}
    for job in plan.jobs(Path("/srv/demo")):
        queue = (job.metadata.tenant or "", job.spec.queue)
        asked[queue] = asked.get(queue, 0) + job.spec.replicas * job.spec.devices_per_replica
    assert {queue: asked[queue] > quota for queue, quota in plan.quotas().items()} == dict.fromkeys(asked, True)
