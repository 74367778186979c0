import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.spec.base import Metadata
from schemas.spec.cluster import Cluster, ClusterSpec, NodeSpec
from schemas.spec.gpuclass import GpuClass
from schemas.spec.job import Job, JobSpec
from schemas.spec.parse import MAX_FAULTS, DocumentFault, Parsed, nearest, parse
from schemas.spec.queue import Queue
from schemas.spec.text import MAX_DEPTH, MAX_DOCUMENTS, MAX_TEXT_BYTES, TextRefusedError

JOB = "apiVersion: triplane/v1\nkind: Job\nmetadata: {name: a}\n"
GOOD = JOB + "spec: {queue: q, devicesPerReplica: 1, command: [a]}\n"
A_JOB = Job(metadata=Metadata(name="a"), spec=JobSpec(queue="q", devices_per_replica=1, command=("a",)))
NAME_REMEDY = "use a-z, 0-9 and -, start and end with a letter or digit, at most 63 characters"


def faults(text: str) -> list[str]:
    return [f"{fault.line} {fault}" for parsed in parse(text) for fault in parsed.faults]


def test_every_kind_that_the_architecture_shows_is_read() -> None:
    text = """\
apiVersion: triplane/v1
kind: Job
metadata: {name: llama-sft, tenant: research, labels: {team: nlp}}
spec:
  queue: nlp
  priorityClass: normal
  classes: [h100, a100]
  replicas: 4
  devicesPerReplica: 8
  topology: {required: rack}
  timeLimit: 2h
  retries: 2
  workdir: /srv/llama
  env: {EPOCHS: "3"}
  command: [python, train.py]
---
apiVersion: triplane/v1
kind: Queue
metadata: {name: nlp, tenant: research}
spec: {order: BestEffortFIFO, quotas: [{class: h100, nominal: 16}]}
---
apiVersion: triplane/v1
kind: GpuClass
metadata: {name: h100}
spec: {match: {model: NVIDIA H100 80GB HBM3}, pricePerHour: "2.50 USD"}
---
apiVersion: triplane/v1
kind: Cluster
metadata: {name: demo}
spec: {backend: local, nodes: [{name: n1, devices: 8, model: NVIDIA H100 80GB HBM3, place: {rack: r1, block: b1}}]}
"""
    results = parse(text)
    assert [type(parsed.document) for parsed in results] == [Job, Queue, GpuClass, Cluster]
    assert [(parsed.number, parsed.line, parsed.kind, parsed.name) for parsed in results] == [
        (1, 1, "Job", "llama-sft"),
        (2, 16, "Queue", "nlp"),
        (3, 21, "GpuClass", "h100"),
        (4, 26, "Cluster", "demo"),
    ]
    assert results[3].document == Cluster(
        metadata=Metadata(name="demo"),
        spec=ClusterSpec(
            backend="local",
            nodes=(NodeSpec(name="n1", devices=8, model="NVIDIA H100 80GB HBM3", place={"rack": "r1", "block": "b1"}),),
        ),
    )


def test_json_is_read_with_its_tabs_and_escapes() -> None:
    text = (
        '{"apiVersion": "triplane/v1",\t"kind": "Job", "metadata": {"name": "a"},\r\n'
        '\t"spec": {"queue": "q", "devicesPerReplica": 1, "command": ["\\ud83d\\ude00\\/\\n"]}}'
    )
    (parsed,) = parse(text)
    assert parsed.document == A_JOB.model_copy(update={"spec": A_JOB.spec.model_copy(update={"command": ("😀/\n",)})})


def test_what_yaml_would_guess_stays_text() -> None:
    text = JOB + "spec: {queue: q, devicesPerReplica: 1, command: [yes, 1:30, 2026-01-01, 0x1f, 007, 1e3, .inf]}"
    (parsed,) = parse(text)
    assert isinstance(parsed.document, Job)
    assert parsed.document.spec.command == ("yes", "1:30", "2026-01-01", "0x1f", "007", "1e3", ".inf")


def test_a_broken_document_takes_no_other_along() -> None:
    broken = "kind: Job\nspec: [1\n"
    results = parse(f"{GOOD}---\n{broken}---\n{GOOD}...\n# nothing here\n--- \n{GOOD}")
    assert [(parsed.number, parsed.line, parsed.document) for parsed in results] == [
        (1, 1, A_JOB),
        (2, 5, None),
        (3, 8, A_JOB),
        (4, 15, A_JOB),
    ]
    assert results[1].faults == (
        DocumentFault(
            path="",
            message="is not YAML: did not find expected ',' or ']', while parsing a flow sequence",
            remedy="check indentation, quotes and brackets around this line",
            line=7,
        ),
    )


def test_a_marker_inside_a_text_block_that_is_indented_divides_nothing() -> None:
    text = JOB + "spec:\n  queue: q\n  devicesPerReplica: 1\n  command:\n  - |\n    ---\n    x\n"
    (parsed,) = parse(text)
    assert isinstance(parsed.document, Job)
    assert parsed.document.spec.command == ("---\nx\n",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec: 3", ["4 spec: 3 is not a mapping; write 'key: value' lines below it"]),
        ("", ["None spec: is missing; add spec"]),
        (
            "spec:\n  queue: q\n  devicesPerReplica: -4\n  comand: [a]",
            [
                "6 spec.devicesPerReplica: -4 is too small; write at least 1",
                "4 spec.command: is missing; add command",
                "7 spec.comand: is not a field of this document; did you mean command?",
            ],
        ),
        (
            "spec: {queue: q, devices_per_replica: 1, devicesPerReplica: 1, command: [a]}",
            ["4 spec.devices_per_replica: is not a field of this document; did you mean devicesPerReplica?"],
        ),
        (
            "spec: {queue: q, devicesPerReplica: '4', replicas: true, retries: 1.5, command: a}",
            [
                "4 spec.replicas: true is not a whole number; write a whole number without quotes",
                "4 spec.devicesPerReplica: '4' is not a whole number; write a whole number without quotes",
                "4 spec.retries: 1.5 is not a whole number; write a whole number without quotes",
                "4 spec.command: 'a' is not a list; write [a, b], or one '- ' line an item",
            ],
        ),
        (
            "spec: {queue: q, devicesPerReplica: 1, command: [a, 3], env: {EPOCHS: 3, 3B: x}}",
            [
                '4 spec.env.EPOCHS: 3 is not text; write it in quotes, such as "3"',
                "4 spec.env.3B: '3B' is not a name; use letters, digits and _",
                '4 spec.command[1]: 3 is not text; write it in quotes, such as "3"',
            ],
        ),
        (
            "spec: {queue: Q, devicesPerReplica: 1, command: [], timeLimit: 2 hours, priorityClass: hihg}",
            [
                f"4 spec.queue: 'Q' is not a name; {NAME_REMEDY}",
                "4 spec.priorityClass: 'hihg' is not known; did you mean high?",
                (
                    "4 spec.timeLimit: '2 hours' is not a duration; "
                    "write a whole number and s, m, h or d, such as 30s or 2h"
                ),
                "4 spec.command: is too short; write at least 1",
            ],
        ),
        (
            "spec: {queue: q, devicesPerReplica: 1, command: [a], topology: {required: r, preferred: b}}",
            ["4 spec.topology: write either required or preferred, with the name of a topology level such as rack"],
        ),
        ("spec: &x {queue: *x}", ["4 spec.queue: refers to *x; write the value out; aliases are not taken"]),
        ("spec: !!python/name:os.system x", ["4 spec: has a tag; write the plain value; tags are not taken"]),
        (
            "spec:\n  queue: q\n  queue: p",
            ["6 spec.queue: is written twice, on lines 5 and 6; keep one"],
        ),
        ("spec: {1: a}", ["4 spec: has a key that is not text; write the key as text, in quotes if needed"]),
        ("spec: {[a]: b}", ["4 spec: has a key that is not text; write the key as text, in quotes if needed"]),
        ("spec: " + "[" * 40 + "]" * 40, ["4 " + "spec" + "[0]" * 32 + ": is nested more than 32 deep; flatten it"]),
        (
            "spec:\n\t- a",
            [
                (
                    "5 is not YAML: found character that cannot start any token, while scanning for the next token; "
                    "indent with spaces, and put text that starts with a special character in quotes"
                )
            ],
        ),
        (
            "spec: a: b",
            [
                (
                    "4 is not YAML: mapping values are not allowed in this context; "
                    "put a text that holds ': ' in quotes, and check the indentation"
                )
            ],
        ),
        (
            "spec: 'open",
            [
                (
                    "4 is not YAML: found unexpected end of stream, while scanning a quoted scalar; "
                    "check indentation, quotes and brackets around this line"
                )
            ],
        ),
        ('spec: "a\\0b"', ["4 spec: holds a NUL character; take it out"]),
        ('spec: {"a\\0b": 1}', ["4 spec: holds a NUL character; take it out"]),
        ("spec: \x01", ["4 holds a character that YAML does not allow; take it out"]),
    ],
)
def test_a_bad_job_is_told_field_fault_and_remedy(text: str, expected: list[str]) -> None:
    assert faults(JOB + text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a", ['None ["a"] is not a document; write apiVersion, kind, metadata and spec']),
        (
            "kind: Jbo",
            [
                "None apiVersion: is missing; write apiVersion: triplane/v1",
                "1 kind: 'Jbo' is not known; did you mean Job?",
            ],
        ),
        (
            "apiVersion: v1\nkind: Deployment",
            [
                "1 apiVersion: 'v1' is not known; write apiVersion: triplane/v1",
                "2 kind: 'Deployment' is not known; known: Cluster, GpuClass, Job, Queue",
            ],
        ),
        (
            (
                "apiVersion: triplane/v1\nkind: Queue\nmetadata: {name: a}\n"
                "spec:\n  quotas:\n  - {class: h, nominal: -1}\n  - {clas: h, nominal: 3}"
            ),
            [
                "6 spec.quotas[0].nominal: -1 is too small; write at least 0",
                "7 spec.quotas[1].class: is missing; add class",
                "7 spec.quotas[1].clas: is not a field of this document; did you mean class?",
            ],
        ),
        (
            (
                "apiVersion: triplane/v1\nkind: Queue\nmetadata: {name: a}\n"
                "spec:\n  quotas: [{class: h, nominal: 1}]\n  preemption: {withinQueue: LowerPriorty}"
            ),
            [
                "6 spec.preemption.withinQueue: 'LowerPriorty' is not known; did you mean LowerPriority?",
            ],
        ),
        (
            (
                "apiVersion: triplane/v1\nkind: Queue\nmetadata: {name: a}\n"
                "spec:\n  quotas: [{class: h, nominal: 1}]\n  preemption: {withinCohort: Any}"
            ),
            ["6 spec.preemption.withinCohort: is not a field of this document; did you mean withinQueue?"],
        ),
        (
            (
                "apiVersion: triplane/v1\nkind: GpuClass\nmetadata: {name: a}\n"
                "spec:\n  match: {model: A}\n  pricePerHour: 2.50"
            ),
            ['6 spec.pricePerHour: 2.5 is not text; write it in quotes, such as "2.5"'],
        ),
        (
            (
                "apiVersion: triplane/v1\nkind: Cluster\nmetadata: {name: a, labels: {a: 1}}\n"
                "spec: {backend: k8s, nodes: [{name: n1, devices: 8, model: x, memory: 3q}]}"
            ),
            [
                '3 metadata.labels.a: 1 is not text; write it in quotes, such as "1"',
                "4 spec.backend: 'k8s' is not known; known: local, pretend",
                (
                    "4 spec.nodes[0].memory: '3q' is not an amount of memory; "
                    "write a whole number and Mi, Gi or Ti, such as 64Gi"
                ),
            ],
        ),
        (
            (
                "apiVersion: triplane/v1\nkind: Cluster\nmetadata: {name: a}\nspec: {backend: local, nodes: "
                "[{name: n1, devices: 8, model: x, cpu: 999999999999999999, memory: 999999999999999999}]}"
            ),
            [
                "4 spec.nodes[0].memory: '999999999999999999Mi' is more than 999999999Mi",
                "4 spec.nodes[0].cpu: '999999999999999999' is more than 999999 CPUs",
            ],
        ),
        (
            JOB + "spec: {queue: q, devicesPerReplica: 1, command: [a], memoryPerReplica: 1000Ti, cpuPerReplica: -1}",
            [
                "4 spec.cpuPerReplica: -1 is too small; write at least 0",
                "4 spec.memoryPerReplica: '1000Ti' is more than 999999999Mi",
            ],
        ),
    ],
)
def test_a_bad_document_of_any_kind_is_told_what_mends_it(text: str, expected: list[str]) -> None:
    assert faults(text) == expected


def test_a_document_with_very_many_faults_shows_the_first_of_them() -> None:
    unknown = ", ".join(f"x{number}: 1" for number in range(100))
    assert len(faults(f"{JOB}spec: {{queue: q, devicesPerReplica: 1, command: [a], {unknown}}}")) == MAX_FAULTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a" * (MAX_TEXT_BYTES + 1), f"{MAX_TEXT_BYTES + 1} bytes are over the limit of {MAX_TEXT_BYTES}"),
        ("---\na\n" * (MAX_DOCUMENTS + 1), f"{MAX_DOCUMENTS + 1} documents are over the limit of {MAX_DOCUMENTS}"),
        (b"a: \xff", "the text is not UTF-8"),
        ("a: \ud800", "the text is not UTF-8"),
    ],
)
def test_a_text_beyond_the_bounds_is_refused_as_a_whole(text: str | bytes, message: str) -> None:
    with pytest.raises(TextRefusedError) as caught:
        parse(text)
    assert caught.value.message == message


def test_a_text_without_documents_has_no_results() -> None:
    assert parse("---\n# nothing\n...\n%YAML 1.2\n---\n") == ()


def test_a_line_of_many_signs_of_comment_is_read_as_fast_as_any_other() -> None:
    assert faults("#" * 100_000 + "\n" + GOOD) == []


@pytest.mark.parametrize("cpu", [0, 999_999, "999999", "999999000m", "1500001m"])
@pytest.mark.parametrize("memory", [0, 999_999_999, "953Ti", "999999999Mi"])
def test_what_is_taken_can_be_read_again_as_it_is_kept(cpu: int | str, memory: int | str) -> None:
    spec = f"spec: {{queue: q, devicesPerReplica: 1, command: [a], cpuPerReplica: {cpu}, memoryPerReplica: {memory}}}"
    (parsed,) = parse(JOB + spec)
    assert isinstance(parsed.document, Job)
    assert Job.model_validate(parsed.document.model_dump(mode="json")) == parsed.document


def test_nesting_of_thousands_of_levels_is_refused_and_not_followed() -> None:
    assert MAX_DEPTH < 100
    (parsed,) = parse(JOB + "spec: " + '{"a":' * 100_000)
    assert parsed == Parsed(
        1,
        1,
        None,
        None,
        None,
        (DocumentFault(path="spec" + ".a" * 32, message="is nested more than 32 deep", remedy="flatten it", line=4),),
    )


def test_the_nearest_name_is_proposed_or_else_the_known_ones() -> None:
    assert nearest("nlpp", ["nlp", "vision"]) == "did you mean nlp?"
    assert nearest("zzz", ["nlp", "vision"]) == "known: nlp, vision"
    assert nearest("zzz", []) == ""


@given(st.text(alphabet=st.sampled_from("ab:{}[]-'\"\n \t#&*!|>%@`,?~.0\\\x00\ud800é"), max_size=60))
def test_whatever_is_written_there_is_a_result_or_a_refusal(text: str) -> None:
    if "\ud800" in text:
        with pytest.raises(TextRefusedError):
            parse(text)
        return
    results = parse(f"{JOB}{text}\n---\n{GOOD}")
    assert results[-1].document == A_JOB
    assert all(parsed.document is not None or parsed.faults for parsed in results)


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("0s", "4 spec.recoveryTimeout: 0s is not from 1s to 24h; leave it out to hold nothing"),
        ("2d", "4 spec.recoveryTimeout: 2d is not from 1s to 24h; leave it out to hold nothing"),
    ],
)
def test_a_recovery_timeout_that_cannot_be_is_named(written: str, fault: str) -> None:
    assert faults(GOOD.replace("command: [a]", f"command: [a], recoveryTimeout: {written}")) == [fault]


def test_a_recovery_timeout_is_what_the_demand_says() -> None:
    for written, seconds in (("", None), (", recoveryTimeout: 10m", 600)):
        (parsed,) = parse(GOOD.replace("command: [a]", f"command: [a]{written}"))
        assert isinstance(parsed.document, Job)
        assert parsed.document.spec.demand().recovery_seconds == seconds
