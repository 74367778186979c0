"""The command without a gateway: start, words, exits, files."""

import os
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from cli import exits
from cli.main import app, flags_first
from cli.output import age, counts, span, words
from libs.client.config import Access, find, read, remember_state
from libs.client.errors import ConfigError, ProblemError, UnreachableError
from libs.client.models import Problem
from tests.support.builders import NOON


def run(*words: str, home: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "cli.main", *words]
    return subprocess.run(
        command, capture_output=True, text=True, input=given, env=environment, timeout=60, check=False
    )


def test_version_loads_little(tmp_path: Path) -> None:
    done = run("version", home=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "triplane")
    imported = subprocess.run(
        [sys.executable, "-c", "import sys, cli.main; print('httpx' in sys.modules, 'pydantic' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert imported.stdout.split() == ["False", "False"]


def test_help_tells_the_exit_codes(tmp_path: Path) -> None:
    done = run("--help", home=tmp_path)
    assert done.returncode == 0
    for word in ("2 bad input", "3 not found", "4 denied", "6 conflict", "submit", "explain", "uncordon"):
        assert word in done.stdout


def test_without_an_address_the_remedy_is_told(tmp_path: Path) -> None:
    done = run("jobs", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        exits.BAD_INPUT,
        "",
        (
            "triplane: no address of a gateway is set\n"
            "  → start a stack with 'triplane up', or set --address and --token\n"
        ),
    )


def test_a_gateway_that_is_away_is_named_with_where_its_address_came_from(tmp_path: Path) -> None:
    done = run("jobs", "--address", "http://127.0.0.1:1", "--token", "x", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        exits.UNREACHABLE,
        (
            "triplane: the gateway at http://127.0.0.1:1 does not answer (ConnectError)\n"
            "  → is it up? see 'triplane status'; the address is from flags and environment\n"
        ),
    )


def test_an_address_without_http_is_told_at_once(tmp_path: Path) -> None:
    done = run("jobs", "--address", "localhost:8080", "--token", "x", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        exits.BAD_INPUT,
        "triplane: localhost:8080 is no address of a gateway\n  → write it such as http://127.0.0.1:8080\n",
    )


@pytest.mark.parametrize("address", ["http://[::bad", "http://a:b", "http://", "http://a:99999"])
def test_an_address_that_names_no_place_is_told_at_once(tmp_path: Path, address: str) -> None:
    done = run("jobs", "--address", address, "--token", "x", home=tmp_path)
    assert (done.returncode, done.stderr) == (
        exits.BAD_INPUT,
        f"triplane: {address} is no address of a gateway\n  → write it such as http://127.0.0.1:8080\n",
    )


@pytest.mark.parametrize("token", ["ümlaut", "two\nlines", "a\x7f"])
def test_a_token_that_no_header_can_carry_is_told_at_once(tmp_path: Path, token: str) -> None:
    done = run("jobs", "--address", "http://127.0.0.1:1", "--token", token, home=tmp_path)
    assert (done.returncode, done.stderr) == (
        exits.BAD_INPUT,
        "triplane: the token holds a character that no token has\n  → copy it again, without quotes or line ends\n",
    )


def test_a_wrong_word_ends_with_bad_input(tmp_path: Path) -> None:
    assert run("job", home=tmp_path).returncode == exits.BAD_INPUT
    assert run("jobs", "-o", "xml", home=tmp_path).returncode == exits.BAD_INPUT


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("job",), "job"),
        (("job", "--trace"), "job"),
        (("explain",), "job"),
        (("cancel",), "job"),
        (("logs",), "job"),
        (("cordon", "--reason", "x"), "node"),
        (("drain", "--reason", "x"), "node"),
        (("uncordon", "--reason", "x"), "node"),
        (("move", "--to", "b", "--reason", "x", "n1"), "node"),
        (("moves", "cancel", "--reason", "x"), "move"),
        (("escalations", "settle", "--reason", "x", "grant_1"), "node"),
        (("tokens", "revoke"), "token"),
    ],
)
def test_a_name_that_is_none_is_told_before_anybody_is_asked(tmp_path: Path, words: tuple[str, ...], kind: str) -> None:
    nowhere = ("--address", "http://127.0.0.1:1", "--token", "x")
    for name, told in (("", f"the {kind} is missing"), (" ", f"the {kind} is missing"), ("..", f".. is no {kind}")):
        done = run(*nowhere, *words, name, home=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"triplane: {told}\n  → name a {kind}\n")


@pytest.mark.parametrize(
    "words", [("mix.yaml", "--gpus", "2"), ("mix.yaml", "--gpus", "2", "--", "x"), ("--gpus=2", "x")]
)
def test_a_word_that_is_not_behind_two_dashes_is_no_command(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run("--address", "http://127.0.0.1:1", "--token", "x", "submit", *words, home=tmp_path)
    first = "x" if words[0] == "--gpus=2" else "mix.yaml"
    assert (done.returncode, done.stderr) == (
        exits.BAD_INPUT,
        (
            f"triplane: {first} is not behind --, where the command of --gpus is\n"
            "  → write --gpus N -- COMMAND, or files without --gpus\n"
        ),
    )


def test_a_file_of_ten_megabytes_is_refused_by_name(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"a" * (10 << 20))
    done = run("--address", "http://x", "--token", "x", "submit", str(large), home=tmp_path)
    assert (done.returncode, done.stderr) == (
        exits.BAD_INPUT,
        f"triplane: {large} is too large: more than 1048576 bytes\n  → divide it into smaller files\n",
    )


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        (
            "lost.yaml",
            "lost.yaml: No such file or directory",
            "name a file that is there; a command comes after -- and",
        ),
        ("empty", "empty holds no .yaml, .yml or .json file", "name a file"),
        ("latin.yaml", "latin.yaml: the text is not UTF-8", "save it as UTF-8"),
    ],
)
def test_files_that_can_not_be_read_are_named(tmp_path: Path, name: str, message: str, remedy: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.yaml").write_bytes("a: é".encode("latin-1"))
    done = run("--address", "http://x", "--token", "x", "submit", str(tmp_path / name), home=tmp_path)
    assert done.returncode == exits.BAD_INPUT
    assert f"{tmp_path}/{message}" in done.stderr
    assert f"→ {remedy}" in done.stderr


def test_flags_may_stand_behind_the_command_but_not_behind_two_dashes() -> None:
    assert flags_first(["jobs", "--address", "a", "-o", "json", "--token=t"]) == [
        "--address",
        "a",
        "--token=t",
        "jobs",
        "-o",
        "json",
    ]
    assert flags_first(["submit", "--gpus", "1", "--", "x", "--token", "y"]) == [
        "submit",
        "--gpus",
        "1",
        "--",
        "x",
        "--token",
        "y",
    ]


def problem(status: int) -> ProblemError:
    return ProblemError(Problem(type="t", title="T", status=status, detail="d", field="f", remedy="r"))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (problem(400), 2),
        (problem(401), 4),
        (problem(403), 4),
        (problem(404), 3),
        (problem(409), 6),
        (problem(422), 2),
        (problem(500), 1),
        (UnreachableError("x"), 5),
        (ConfigError("x"), 2),
        (exits.CommandError(6, "x"), 6),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exits.explained(error) == code


def test_a_problem_is_told_with_field_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    exits.explained(problem(400))
    assert capsys.readouterr().err == "triplane: f: d\n  → r\n"


def test_what_the_system_refuses_is_told_in_its_words_and_is_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits.explained(OSError(28, "No space left on device")) == 1
    assert capsys.readouterr().err == (
        "triplane: what there is to say cannot be read or written: No space left on device\n"
    )
    assert exits.explained(UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates")) == 2
    assert capsys.readouterr().err == "triplane: '\\udcff' is no text\n  → write arguments in UTF-8\n"


def test_a_defect_shows_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits.explained(ZeroDivisionError("oops")) == 1
    assert capsys.readouterr().err == (
        "triplane: a defect: ZeroDivisionError: oops\n  → run it again with TRIPLANE_DEBUG=1 for the traceback\n"
    )


def test_durations_and_ages_have_two_units() -> None:
    assert [span(s) for s in (-1, 0, 59, 60, 3_661, 90_000, 86_400 * 3)] == [
        "0s",
        "0s",
        "59s",
        "1m",
        "1h1m",
        "1d1h",
        "3d",
    ]
    assert age(NOON, NOON + timedelta(minutes=5, seconds=2)) == "5m2s"
    assert age(None) == "-"


def test_cells_are_words() -> None:
    assert [words(cell) for cell in (None, "", (), ("a", "b"), 3, NOON)] == [
        "-",
        "-",
        "-",
        "a,b",
        "3",
        "2026-01-15 12:00:00",
    ]
    assert counts({"h100": 8, "a100": 4}) == "h100:8,a100:4"


def a_file(path: Path, text: str = "address: http://gate/\ntoken: secret\n", mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_where_the_gateway_is_comes_from_the_first_that_says_it(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    default = a_file(tmp_path / ".local/state/triplane/client.yaml", "address: http://default\ntoken: t0\n")
    assert find(None, None, home) == Access("http://default", "t0", str(default))
    a_file(tmp_path / "stack/client.yaml", "address: http://last\ntoken: t1\n")
    remember_state(tmp_path / "stack", home)
    assert find(None, None, home).address == "http://last"
    a_file(tmp_path / ".config/triplane/config.yaml", "address: http://config\ntoken: t2\n")
    assert find(None, None, home).address == "http://config"
    a_file(tmp_path / "state/client.yaml", "address: http://state\ntoken: t3\n")
    state = {**home, "TRIPLANE_STATE": str(tmp_path / "state")}
    assert find(None, None, state).address == "http://state"
    named = {**state, "TRIPLANE_CONFIG": str(a_file(tmp_path / "named.yaml"))}
    assert find(None, None, named) == Access("http://gate", "secret", str(tmp_path / "named.yaml"))
    assert find("http://flag/", None, named) == Access("http://flag", "secret", str(tmp_path / "named.yaml"))
    told = {**named, "TRIPLANE_ADDRESS": "http://env", "TRIPLANE_TOKEN": "t4"}
    assert find("http://flag", None, told) == Access("http://flag", "t4", "flags and environment")


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("address: http://x\ntoken: t\n", 0o644, "others can read the token in {}"),
        ("address: [", 0o600, "{} can not be read (ParserError)"),
        ("address: http://x\n", 0o600, "{} lacks address or token"),
        ("- a", 0o600, "{} lacks address or token"),
    ],
)
def test_a_file_that_is_broken_or_open_to_others_is_refused(tmp_path: Path, text: str, mode: int, message: str) -> None:
    path = a_file(tmp_path / "c.yaml", text, mode)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert caught.value.message == message.format(path)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\$TRIPLANE_CONFIG names .*, which is not there"):
        find(None, None, {"HOME": str(tmp_path), "TRIPLANE_CONFIG": str(tmp_path / "none")})


@pytest.mark.parametrize(("address", "token", "flag"), [("", None, "--address"), (None, "", "--token")])
def test_an_empty_flag_is_no_word_for_whom_the_configuration_names(
    tmp_path: Path, address: str | None, token: str | None, flag: str
) -> None:
    home = {"HOME": str(tmp_path)}
    a_file(tmp_path / ".config/triplane/config.yaml")
    with pytest.raises(ConfigError, match=f"{flag} is empty"):
        find(address, token, home)


def test_a_token_is_not_shown_by_accident(tmp_path: Path) -> None:
    access = read(a_file(tmp_path / "c.yaml"))
    assert "secret" not in repr(access)
    assert stat.S_IMODE((tmp_path / "c.yaml").stat().st_mode) == 0o600


def test_the_entry_point_is_callable() -> None:
    assert callable(app)
