"""What people get wrong at the command, told before it is taken for something else."""

import json

from tests.support.builders import a_job_id
from tests.support.gateways import a_job
from tests.support.triplane_command import Done, Shell


async def test_a_file_without_a_document_is_named_beside_good_ones(shell: Shell) -> None:
    good, empty, silent = (
        shell.file(f"{name}.yaml", text)
        for name, text in (("good", a_job()), ("empty", ""), ("silent", "# soon\n---\n"))
    )
    done = await shell.run("submit", empty, good, silent)
    told = "".join(
        f"triplane: there is no document in {file}\n  → write one, or leave the file out\n" for file in (empty, silent)
    )
    assert done == Done(2, f"created   Job train ({a_job_id()})\n", told)
    again = await shell.run("apply", good, empty, "-o", "json")
    assert (again.code, json.loads(again.out)[0]["outcome"], f"in {empty}\n" in again.err) == (2, "unchanged", True)


async def test_an_empty_name_or_tenant_of_a_command_is_refused_and_not_invented(shell: Shell) -> None:
    for flag in ("name", "tenant"):
        done = await shell.run("submit", "--gpus", "1", f"--{flag}", "", "--", "x")
        assert (done.code, done.out, f"metadata.{flag}" in done.err) == (2, "", True)


async def test_cancelling_many_goes_on_past_one_that_has_no_name(shell: Shell) -> None:
    await shell.asking.submit(a_job("a") + "---\n" + a_job("b"))
    done = await shell.run("cancel", "a", "", "b")
    told = "triplane: the job is missing\n  → name a job\n"
    assert done == Done(2, f"cancelling a ({a_job_id('a')})\ncancelling b ({a_job_id('b')})\n", told)


async def test_events_of_a_type_without_text_are_refused(shell: Shell) -> None:
    for kind in ("", " "):
        done = await shell.run("events", "--type", kind)
        assert (done.code, done.out, done.err.startswith("triplane: type: ")) == (2, "", True)
