import os
import subprocess
from pathlib import Path

from deploy.embedded.demo import diary

RUN = {
    "TRIPLANE_JOB_NAME": "train",
    "TRIPLANE_ATTEMPT": "2",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "TRIPLANE_GRANT": "grant_1",
    "TRIPLANE_DEVICES": "dev_a,dev_b",
    "PATH": os.defpath,
}


def test_the_script_notes_what_it_was_given_and_ends_as_it_was_told(tmp_path: Path) -> None:
    diary.lay_out(tmp_path)
    done = subprocess.run(["sh", "work.sh", "0.01", "3"], cwd=tmp_path, env=RUN, check=False, capture_output=True)
    (entry,) = diary.read(tmp_path)
    assert (done.returncode, done.stdout) == (3, b"rank 1 of 2 on devices dev_a,dev_b\n")
    assert (entry.job, entry.attempt, entry.rank, entry.grant, entry.devices) == (
        "train",
        2,
        1,
        "grant_1",
        ("dev_a", "dev_b"),
    )
    assert entry.end is not None
    assert entry.end - entry.begin >= 0.01


def test_a_process_that_was_killed_has_no_end(tmp_path: Path) -> None:
    diary.lay_out(tmp_path)
    (tmp_path / diary.NAME).write_text("begin 12.5 train 1 0 grant_1 dev_a\n")
    assert diary.read(tmp_path) == [diary.Entry("train", 1, 0, "grant_1", ("dev_a",), 12.5, None)]
