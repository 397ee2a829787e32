"""`lamina wal` and `lamina recover` on everything that can be wrong with a home."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import pytest

from lamina.disk import LocalDisk
from lamina.format.wal import Kind
from lamina.wal import SegmentReader
from tests.support.command_line import answer, lamina, tree, without_rights
from tests.support.homes import HomeAndStore, flip, make_home, tear

COMMANDS = {
    "list": ("wal", "list", "--home", "HOME"),
    "dump": ("wal", "dump", "--home", "HOME"),
    "verify": ("wal", "verify", "--home", "HOME"),
    "plan": ("wal", "repair", "--home", "HOME", "SEGMENT", "--dry-run"),
    "repair": ("wal", "repair", "--home", "HOME", "SEGMENT", "--yes"),
    "recover": ("recover", "--home", "HOME", "--store", "STORE", "--dry-run"),
}


@pytest.fixture(scope="module")
def template() -> Iterator[HomeAndStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield make_home(Path(folder))


@pytest.fixture
def made(template: HomeAndStore, tmp_path: Path) -> HomeAndStore:
    return template.copy_to(tmp_path)


def no_home(made: HomeAndStore) -> None:
    shutil.rmtree(made.home)


def empty_folder(made: HomeAndStore) -> None:
    shutil.rmtree(made.home)
    made.home.mkdir()


def a_file_for_a_home(made: HomeAndStore) -> None:
    shutil.rmtree(made.home)
    made.home.write_text("no folder")


def lost_home_json(made: HomeAndStore) -> None:
    (made.home / "home.json").unlink()


def damaged_home_json(made: HomeAndStore) -> None:
    (made.home / "home.json").write_bytes(b'{"id": "\xff')


def home_json_without_id(made: HomeAndStore) -> None:
    (made.home / "home.json").write_text('{"version": 1, "id": "abcd"}')


def foreign_files(made: HomeAndStore) -> None:
    (made.home / "notes.txt").write_text("mine")
    (made.home / "core-0" / "copy of a segment.wal").write_bytes(made.core(0).read_bytes())
    (made.home / "core-07").mkdir()


def what_lamina_leaves_behind(made: HomeAndStore) -> None:
    (made.home / f"home.json.{'0' * 32}").write_text("a crash before the rename")
    Path(f"{made.core(0)}.cut-64").write_bytes(b"cut")
    Path(f"{made.core(0)}.cut-64+").write_bytes(b"cut again")


def a_file_for_a_core(made: HomeAndStore) -> None:
    (made.home / "core-7").write_text("no folder")


def damaged_old_payload(made: HomeAndStore) -> None:
    """Below the checkpoint: nobody replays it, so only those who read it notice."""
    flip(made.core(0), 64 + 100)


def damaged_payload(made: HomeAndStore) -> None:
    flip(made.core(0), last(made, made.core(0), Kind.RUN, 2) + 100)


def damaged_record_header(made: HomeAndStore) -> None:
    flip(made.core(0), last(made, made.core(0), Kind.RUN, 2) + 9)


def damaged_segment_header(made: HomeAndStore) -> None:
    flip(made.core(0), 33)


def damaged_driver_log(made: HomeAndStore) -> None:
    flip(made.driver, last(made, made.driver, Kind.COMMIT, 2) + 9)


def torn_tail(made: HomeAndStore) -> None:
    tear(made.core(0))


def torn_driver_log(made: HomeAndStore) -> None:
    """Epoch 6 was never acknowledged: its COMMIT is there in part."""
    tear(made.driver)


def segment_of_another_home(made: HomeAndStore) -> None:
    """Its header says so, with a checksum that holds."""
    header = bytearray(made.core(0).read_bytes()[:60])
    header[16:32] = bytes(16)
    crc = google_crc32c.value(bytes(header)).to_bytes(4, "little")
    made.core(0).write_bytes(bytes(header) + crc)


def newer_segment(made: HomeAndStore) -> None:
    header = bytearray(made.core(0).read_bytes()[:60])
    header[8] = 99
    crc = google_crc32c.value(bytes(header)).to_bytes(4, "little")
    made.core(0).write_bytes(bytes(header) + crc)


def lost_records(made: HomeAndStore) -> None:
    """A cut at a record boundary: the file itself looks clean."""
    with made.core(0).open("r+b") as file:
        file.truncate(last(made, made.core(0), Kind.RUN, 2))


def lost_store(made: HomeAndStore) -> None:
    shutil.rmtree(made.store)


def empty_store(made: HomeAndStore) -> None:
    shutil.rmtree(made.store)
    made.store.mkdir()


def damaged_commit_log(made: HomeAndStore) -> None:
    (made.store / "log" / f"{1:020d}.json").write_bytes(b"{")


def last(made: HomeAndStore, segment: Path, kind: Kind, back: int) -> int:
    reader = SegmentReader(LocalDisk(made.home), made.name(segment))
    return [r.offset for r in reader.records(payloads=False) if r.kind is kind][-back]


FINE = dict.fromkeys(COMMANDS, 0)
STORE_ONLY = {
    lost_store: FINE | {"recover": 3},
    empty_store: FINE | {"recover": 3},
    damaged_commit_log: FINE | {"recover": 4},
}
# What each command ends with. SEGMENT is the newest of core 0.
EXPECTED: dict[Callable[[HomeAndStore], None], dict[str, int]] = {
    no_home: dict.fromkeys(COMMANDS, 3),
    empty_folder: dict.fromkeys(COMMANDS, 3),
    a_file_for_a_home: dict.fromkeys(COMMANDS, 2),
    lost_home_json: dict.fromkeys(COMMANDS, 4),
    damaged_home_json: dict.fromkeys(COMMANDS, 4),
    home_json_without_id: dict.fromkeys(COMMANDS, 4),
    foreign_files: FINE | {"verify": 1},
    what_lamina_leaves_behind: FINE,
    a_file_for_a_core: dict.fromkeys(COMMANDS, 4) | {"plan": 0, "repair": 0},
    damaged_old_payload: FINE | {"dump": 4, "verify": 4, "plan": 5, "repair": 5},
    damaged_payload: dict.fromkeys(COMMANDS, 4) | {"list": 0, "plan": 5, "repair": 5},
    damaged_record_header: dict.fromkeys(COMMANDS, 4) | {"plan": 5, "repair": 5},
    damaged_segment_header: dict.fromkeys(COMMANDS, 4) | {"plan": 5, "repair": 5},
    damaged_driver_log: dict.fromkeys(COMMANDS, 4) | {"plan": 0, "repair": 0},
    torn_tail: FINE,
    torn_driver_log: FINE,
    segment_of_another_home: dict.fromkeys(COMMANDS, 4) | {"plan": 0, "repair": 0},
    newer_segment: dict.fromkeys(COMMANDS, 6) | {"list": 4, "verify": 4},
    lost_records: FINE | {"verify": 4, "recover": 4},
    **STORE_ONLY,
}
CASES = [(wrong, name) for wrong, expected in EXPECTED.items() for name in expected]
CHANGING = {(torn_tail, "repair")}


def arguments(name: str, made: HomeAndStore, segment: str = "") -> list[str]:
    filled = {"HOME": str(made.home), "STORE": str(made.store), "SEGMENT": segment}
    return [filled.get(word, word) for word in COMMANDS[name]]


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(("wrong", "name"), CASES, ids=lambda v: getattr(v, "__name__", v))
def test_what_is_wrong_is_said_and_nothing_is_changed(
    made: HomeAndStore,
    wrong: Callable[[HomeAndStore], None],
    name: str,
    more: tuple[str, ...],
) -> None:
    segment = made.name(made.core(0))
    wrong(made)
    folder = made.home.parent
    before = tree(folder)
    folders = sorted(path for path in folder.rglob("*") if path.is_dir())
    result = lamina(*arguments(name, made, segment), *more)
    assert result.exit_code == EXPECTED[wrong][name], result.output
    assert "Traceback" not in result.output
    if more:
        assert ("error" in answer(result)) == bool(result.stderr)
    if result.exit_code > 1:
        assert result.stdout or "error LAM-" in result.stderr
    if (wrong, name) not in CHANGING:
        assert tree(folder) == before
        assert sorted(path for path in folder.rglob("*") if path.is_dir()) == folders


def test_verify_goes_on_without_home_json(made: HomeAndStore) -> None:
    damaged_home_json(made)
    damaged_payload(made)
    found = answer(lamina("wal", "verify", "--home", made.home, "--json"))
    assert found["home"] is None
    assert [p["path"] for p in found["problems"]] == ["home.json", made.name(made.core(0))]


def test_verify_names_strangers_and_knows_its_own(made: HomeAndStore) -> None:
    what_lamina_leaves_behind(made)
    foreign_files(made)
    found = answer(lamina("wal", "verify", "--home", made.home, "--json"))
    assert sorted(p["path"] for p in found["problems"]) == [
        "core-0/copy of a segment.wal",
        "core-07",
        "notes.txt",
    ]
    assert {p["severity"] for p in found["problems"]} == {"warning"}


def test_verify_took_what_a_pipeline_keeps_beside_its_log_for_strangers(made: HomeAndStore) -> None:
    for folder in ("staged", "state", "requests"):
        (made.home / folder).mkdir()
    for name in ("status.json", ".status.json.4711", "preflight-0a1b"):
        (made.home / name).write_text("{}")
    verified = lamina("wal", "verify", "--home", made.home, "--json")
    assert (verified.exit_code, answer(verified)["problems"]) == (0, [])


def test_verify_says_whose_segment_it_is(made: HomeAndStore) -> None:
    segment_of_another_home(made)
    owner = json.loads((made.home / "home.json").read_bytes())["id"]
    problem = answer(lamina("wal", "verify", "--home", made.home, "--json"))["problems"][0]
    assert (problem["expected"], problem["actual"]) == (owner, "0" * 32)


def test_a_segment_in_the_wrong_place(made: HomeAndStore) -> None:
    (made.home / "core-5").mkdir()
    name = made.core(0).name.replace("1-", "7-", 1)
    made.core(0).rename(made.home / "core-5" / name)
    found = answer(lamina("wal", "verify", "--home", made.home, "--json"))
    assert [(p["message"].split()[-1], p["expected"], p["actual"]) for p in found["problems"]] == [
        ("generation", "7", "1"),
        ("core", "5", "0"),
        ("it", "2 records, 1152 bytes", "no file"),  # and it is missed where it was
    ]


def test_the_home_of_another_pipeline(made: HomeAndStore, tmp_path: Path) -> None:
    other = make_home(tmp_path / "other", seed=99)
    asked = ("recover", "--home", other.home, "--store", made.store, "--dry-run")
    refused = lamina(*asked, "--json")
    assert refused.exit_code == 5
    assert answer(refused)["error"]["code"] == "LAM-2100"
    taken = answer(lamina(*asked, "--take-over-home", "--json"))
    assert (taken["epoch"], taken["replay"]) == (4, []), "its own log is not replayed"


def test_a_store_that_has_lost_what_the_home_knows(made: HomeAndStore) -> None:
    for entry in sorted((made.store / "log").iterdir())[2:]:
        entry.unlink()
    (made.store / "_latest").unlink()
    result = lamina("recover", "--home", made.home, "--store", made.store, "--dry-run")
    assert result.exit_code == 4
    assert "Is this the right store for this home?" in result.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("wal", "dump", "no-such-segment"), 2),
        (("wal", "dump", "../home/core-0/x.wal"), 2),
        (("wal", "dump", "/etc/passwd"), 2),
        (("wal", "dump", ""), 2),
        (("wal", "verify", "home.json"), 2),
        (("wal", "verify", f"core-0/{0:020d}-{0:020d}-x.wal"), 3),
        (("wal", "repair", f"driver/{9:020d}-{0:020d}.wal", "--yes"), 3),
        (("wal", "repair", "--yes"), 2),
        (("wal", "dump", "--from", "64"), 2),
        (("wal", "dump", "DRIVER", "--from", "65"), 2),
        (("wal", "dump", "DRIVER", "--from", "128"), 2),
        (("wal", "dump", "DRIVER", "--from", "99999999999999999999"), 2),
        (("wal", "dump", "DRIVER", "--from", "-1"), 2),
        (("wal", "dump", "--limit", "0"), 2),
        (("wal", "list", "--no-such-option"), 2),
        (("wal", "no-such-command"), 2),
        (("recover", "--store", "STORE"), 2),
        (("recover", "--dry-run"), 2),
        (("recover", "--store", "STORE", "--dry-run", "--lose-after", "-1"), 2),
        (("recover", "--store", "STORE", "--dry-run", "--lose-after", "1", "--start-fresh"), 2),
        (("recover", "--store", "STORE", "--base", "typo", "--dry-run"), 3),
        (("recover", "--store", "ftp://x", "--dry-run"), 2),
    ],
)
def test_a_wrong_argument(made: HomeAndStore, command: tuple[str, ...], code: int) -> None:
    before = tree(made.home.parent)
    filled = {"STORE": str(made.store), "DRIVER": made.name(made.driver)}
    result = lamina(*(filled.get(word, word) for word in command), "--home", made.home, "--json")
    assert result.exit_code == code, result.output
    assert answer(result)["error"]["exit_code"] == code
    assert tree(made.home.parent) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_home_option(made: HomeAndStore, name: str) -> None:
    asked = arguments(name, made, "x")
    at = asked.index("--home")
    result = lamina(*asked[:at], *asked[at + 2 :])
    assert result.exit_code == 2
    assert "--home" in result.stderr


@pytest.mark.parametrize("home", ["", " ", "a\0b", "x" * 5000])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_home_that_cannot_be(made: HomeAndStore, name: str, home: str) -> None:
    asked = [home if word == str(made.home) else word for word in arguments(name, made, "x")]
    assert lamina(*asked).exit_code == 2


@contextmanager
def held_by_another_process(lock: Path) -> Iterator[None]:
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("")


@pytest.mark.parametrize("lock", ["lock", "core-0/lock"])
def test_only_repair_asks_for_the_lock(made: HomeAndStore, lock: str) -> None:
    tear(made.core(0))
    segment = made.name(made.core(0))
    before = tree(made.home)
    with held_by_another_process(made.home / lock):
        for name in COMMANDS:
            result = lamina(*arguments(name, made, segment), "--json")
            assert result.exit_code == (5 if name == "repair" else 0), result.output
            if name == "repair":
                assert answer(result)["error"]["code"] == "LAM-4000"
                assert answer(result)["error"]["where"] == str(made.home / lock)
    assert tree(made.home) == before
    assert lamina(*arguments("repair", made, segment)).exit_code == 0


READ_ONLY = dict.fromkeys(COMMANDS, 0) | {"repair": 6}


@pytest.mark.parametrize(("name", "code"), READ_ONLY.items())
def test_a_folder_that_may_not_be_written(template: HomeAndStore, name: str, code: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: nobody may enter that one
        made = template.copy_to(Path(folder))
        shutil.rmtree(made.store / ".tmp", ignore_errors=True)
        tear(made.core(0))
        segment = made.name(made.core(0))
        Path(folder).chmod(0o755)
        for path in Path(folder).rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = tree(Path(folder))
        with without_rights():
            result = lamina(*arguments(name, made, segment), "--json")
        assert result.exit_code == code, result.output
        if code == 6:
            assert answer(result)["error"]["code"] == "LAM-5002"
        assert tree(Path(folder)) == before
        for path in Path(folder).rglob("*"):
            path.chmod(0o755)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_home_that_may_not_be_read(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o000)
        made = HomeAndStore(Path(folder) / "home", Path(folder) / "orders", ())
        with without_rights():
            result = lamina(*arguments(name, made, "x"))
        Path(folder).chmod(0o700)
        assert result.exit_code == 6
        assert "error LAM-5002" in result.stderr
