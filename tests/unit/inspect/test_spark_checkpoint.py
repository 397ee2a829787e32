"""`verify_spark`: real checkpoints of Structured Streaming, damaged in every file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lamina.errors import NotFound
from lamina.format.findings import Severity
from lamina.inspect.spark_checkpoint import Does, SparkReport, verify_spark
from lamina.store import LocalStore, MemoryStore
from lamina.store.base import ObjectInfo
from tests.support.spark_checkpoints import CASES, NAMES, Case, drop_sidecars, flip, keys, unpack

ALL_BYTES = os.environ.get("LAMINA_EXAMPLES") == "all"


def look(folder: Path) -> SparkReport:
    return verify_spark(LocalStore(folder, create=False))


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_checkpoint_has_no_findings(name: str, tmp_path: Path) -> None:
    found = look(unpack(name, tmp_path))
    assert not found.findings
    assert (found.restart.does, found.restart.batch) == (Does.CONTINUES, NAMES[name])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_restart_would_do(case: Case, tmp_path: Path) -> None:
    case.damage(unpack("hdfs", tmp_path))
    found = look(tmp_path)
    assert (found.restart.does, found.restart.batch) == (case.does, case.batch)
    assert (found.findings[0].code if found.findings else "") == case.code
    assert found.ok == (case.does not in (Does.STOPS, Does.LOSES))


@pytest.mark.parametrize("name", ["hdfs", "rocksdb", "rocksdb-changes"])
def test_every_changed_byte_is_found(name: str, tmp_path: Path) -> None:
    whole = unpack(name, tmp_path / "whole")
    needs = look(whole).restart.needs
    for key in keys(whole):
        size = (whole / key).stat().st_size
        for at in range(size) if ALL_BYTES else {0, size // 2, size - 1}:
            kept = (whole / key).read_bytes()
            flip(whole, key, at)
            findings = look(whole).findings
            (whole / key).write_bytes(kept)
            assert any(f.code in ("S011", "S016") and f.where == key for f in findings), (key, at)
            is_error = findings[0].severity is Severity.ERROR
            assert is_error == (key in needs), (key, at)


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_stops_exactly_for_the_files_it_needs(name: str, tmp_path: Path) -> None:
    whole = unpack(name, tmp_path)
    drop_sidecars(whole)
    needs = look(whole).restart.needs
    commits = {key for key in needs if key.startswith("commits/")}  # without it a batch is repeated
    for key in keys(whole):
        kept = (whole / key).read_bytes()
        (whole / key).unlink()
        restart = look(whole).restart
        (whole / key).write_bytes(kept)
        if key in commits and restart.does is Does.REPEATS:
            assert restart.batch == NAMES[name] - 1
        elif key.endswith((".compact", ".zip", ".snapshot")):
            continue  # another way may lead there
        else:
            assert (restart.does in (Does.STOPS, Does.LOSES)) == (key in needs), key


@pytest.mark.parametrize("name", ["hdfs", "rocksdb", "rocksdb-changes"])
def test_every_cut_of_a_file_that_is_needed_is_found_without_sidecars(
    name: str, tmp_path: Path
) -> None:
    whole = unpack(name, tmp_path)
    drop_sidecars(whole)
    for key in sorted(look(whole).restart.needs):
        kept = (whole / key).read_bytes()
        for size in (0, 1, len(kept) // 2):
            (whole / key).write_bytes(kept[:size])
            assert not look(whole).ok, (key, size)
        (whole / key).write_bytes(kept)


def test_the_versions_that_a_commit_names_are_needed_and_no_others(tmp_path: Path) -> None:
    whole = unpack("rocksdb-changes", tmp_path)
    state = whole / "state" / "0" / "0"
    for path in list(state.glob("4_*")):
        path.rename(path.with_name(path.name.replace(path.name[2:10], "00000000")))
    found = look(whole)
    assert found.restart.does is Does.STOPS
    assert found.findings[0].code == "S010"


def test_a_repeated_batch_of_format_2_needs_the_commit_before(tmp_path: Path) -> None:
    whole = unpack("rocksdb-changes", tmp_path)
    (whole / "commits" / "3").unlink()
    assert look(whole).restart.does is Does.REPEATS
    (whole / "commits" / "2").unlink()
    assert look(whole).restart.does is Does.STOPS


def test_a_changed_digit_that_spark_would_believe_is_no_reason_to_start(tmp_path: Path) -> None:
    path = unpack("hdfs", tmp_path) / "offsets" / "9"
    path.write_text(path.read_text().replace('{"logOffset":4}', '{"logOffset":3}'))
    found = look(tmp_path)
    assert (found.restart.does, found.ok) == (Does.TRUSTS, False)
    assert [(f.code, f.where) for f in found.findings] == [("S016", "offsets/9")]


def test_what_a_crash_has_left_is_a_note(tmp_path: Path) -> None:
    whole = unpack("stateless", tmp_path)
    name = ".3.0d3f7a90-7a1c-4c58-9e0c-6f6c1f0a6f2e.tmp"
    (whole / "offsets" / name).write_text("v1")
    (whole / "offsets" / ".7.crc").write_bytes(b"crc\0\0\0\2\0")
    found = look(whole)
    assert {f.where for f in found.findings} == {f"offsets/{name}", "offsets/.7.crc"}
    assert {f.severity for f in found.findings} == {Severity.NOTE}


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotFound, match="not a checkpoint of Structured Streaming"):
        look(tmp_path)


def test_a_query_that_has_just_begun_begins(tmp_path: Path) -> None:
    shutil.copy(unpack("stateless", tmp_path / "whole") / "metadata", tmp_path / "metadata")
    shutil.rmtree(tmp_path / "whole")
    assert look(tmp_path).restart.does is Does.BEGINS


class Running(MemoryStore):
    """A query that commits a batch whenever somebody has listed its checkpoint."""

    def __init__(self, folder: Path, first: int) -> None:
        super().__init__()
        self._folder, self._batch = folder, first

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        found = list(super().list(prefix, after=after))
        for log in ("offsets", "commits"):
            data = (self._folder / log / "2").read_bytes()
            self.put(f"{log}/{self._batch}", data)
        self._batch += 1
        return iter(found)


def test_what_a_running_query_changes_is_no_damage(tmp_path: Path) -> None:
    whole = unpack("stateless", tmp_path)
    drop_sidecars(whole)
    store = Running(whole, first=3)
    for key in keys(whole):
        store.put(key, (whole / key).read_bytes())
    store.delete("commits/1")
    found = verify_spark(store)
    assert [f.code for f in found.findings] == ["S006", "S013"]
