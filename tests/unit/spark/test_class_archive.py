"""The archive of Spark's classes: it saves time, and nothing that happens to it may cost more."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lamina.spark.class_archive import CACHE, KEPT_MAX, ClassArchive, find_archive, make

JAVA = shutil.which("java")
needs_java = pytest.mark.skipif(JAVA is None, reason="no Java on PATH")
NO_PROCESS = 2**22 + 1  # above the highest pid of Linux


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    archive = find_archive(Path(JAVA or __file__).resolve(), tmp_path)
    assert archive is not None
    return archive


def test_without_an_archive_the_jvm_lists_its_classes(archive: ClassArchive) -> None:
    assert archive.options()[0] == f"-XX:DumpLoadedClassList={archive.classes}"
    assert archive.classes.exists()


def test_an_archive_that_is_there_is_used_and_checked(archive: ClassArchive) -> None:
    archive.path.parent.mkdir()
    archive.path.touch()
    assert archive.options()[:2] == [
        f"-XX:SharedArchiveFile={archive.path}",
        "-XX:+VerifySharedSpaces",
    ]


def test_a_cache_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file" / "cache"))
    archive = find_archive(Path(__file__), tmp_path)
    assert archive is not None
    assert archive.options() == []
    archive.make_beside("")
    assert not make(archive.java, archive.path, archive.classes, "")


def test_off_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, "off")
    assert find_archive(Path(__file__), tmp_path) is None


def test_the_users_own_caches_are_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = find_archive(Path(__file__), tmp_path)
    assert archive is not None
    assert archive.path.parent == tmp_path / "lamina"


def test_another_java_and_another_spark_have_another_archive(
    archive: ClassArchive, tmp_path: Path
) -> None:
    other_java, other_spark = tmp_path / "java", tmp_path / "spark"
    other_java.touch()
    other_spark.mkdir()
    before = find_archive(other_java, other_spark)
    os.utime(other_java, (1, 1))  # replaced by a newer one in the same place
    after = find_archive(other_java, other_spark)
    assert before is not None
    assert after is not None
    assert len({archive.path, before.path, after.path}) == 3


def test_a_jvm_that_was_there_already_lists_nothing_and_nothing_is_made(
    archive: ClassArchive,
) -> None:
    archive.options()
    archive.make_beside("")
    assert not archive.classes.exists()


def test_lists_of_processes_that_were_killed_go(archive: ClassArchive) -> None:
    archive.path.parent.mkdir()
    left = archive.path.with_suffix(f".{NO_PROCESS}.classes")
    left.touch()
    archive.options()
    assert not left.exists()
    assert archive.classes.exists()


@needs_java
def test_the_archive_that_is_made_is_one_that_java_takes(archive: ClassArchive) -> None:
    _listed(archive)
    assert make(archive.java, archive.path, archive.classes, "")
    assert _takes(archive)
    assert sorted(each.suffix for each in archive.path.parent.iterdir()) == [".jsa", ".lock"]


@needs_java
def test_a_list_that_a_jvm_is_still_writing_is_cut_at_its_last_line(archive: ClassArchive) -> None:
    _listed(archive)
    with archive.classes.open("a") as file:
        file.write("java/lang/Runnable id: 99999 sup")
    assert make(archive.java, archive.path, archive.classes, "")


@needs_java
def test_two_that_end_at_once_make_one(archive: ClassArchive) -> None:
    _listed(archive)
    with archive.path.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not make(archive.java, archive.path, archive.classes, "")
    assert not archive.path.exists()
    assert not archive.classes.exists()


@needs_java
def test_an_archive_that_java_would_not_take_is_not_kept(archive: ClassArchive) -> None:
    archive.path.parent.mkdir()
    archive.classes.write_text("this is no list of classes @@@\n")
    assert not make(archive.java, archive.path, archive.classes, "")
    assert not archive.path.exists()


@needs_java
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: _flipped(data, 8),
        lambda data: _flipped(data, 600),
        lambda data: _flipped(data, len(data) // 4),
        lambda data: _flipped(data, len(data) // 2),
    ],
    ids=["empty", "half", "zeros", "magic", "header", "quarter", "middle"],
)
def test_java_starts_without_an_archive_that_is_damaged(
    archive: ClassArchive, damage: Callable[[bytes], bytes], made: bytes
) -> None:
    archive.path.parent.mkdir()
    archive.path.write_bytes(damage(made))
    ended = _run(archive, *archive.options(), "-version")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b""
    assert not _takes(archive)


def test_archives_that_were_not_used_for_long_make_room(tmp_path: Path) -> None:
    from lamina.spark import class_archive  # noqa: PLC0415

    for age in range(KEPT_MAX + 2):
        path = tmp_path / f"spark-{age}.jsa"
        path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    class_archive._keep_newest(tmp_path)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"spark-{age}.jsa" for age in range(KEPT_MAX)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A good archive."""
    folder = tmp_path_factory.mktemp("archive")
    archive = ClassArchive(Path(JAVA or "").resolve(), folder / "cache" / "spark-x.jsa")
    _listed(archive)
    assert make(archive.java, archive.path, archive.classes, "")
    return archive.path.read_bytes()


def _listed(archive: ClassArchive) -> None:
    assert _run(archive, *archive.options(), "-version").returncode == 0


def _takes(archive: ClassArchive) -> bool:
    """Whether Java runs with the archive, and not only without it."""
    options = [each for each in archive.options() if not each.startswith("-Xlog")]
    return _run(archive, *options, "-Xshare:on", "-version").returncode == 0


def _run(archive: ClassArchive, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([archive.java, *options], capture_output=True, check=False)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 64]) + data[at + 64 :]
