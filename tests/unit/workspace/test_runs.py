"""Run files that a worker opens again in every epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.errors import LaminaError, RunDamaged
from lamina.state.changes import changes
from lamina.state.layers import PlacedRun, stack
from lamina.state.run_file import Epochs, write_run
from lamina.state.schema import StateSchema
from lamina.state.vnodes import EVERYTHING, SlotRange
from lamina.workspace.local import LocalTaskSpace
from lamina.workspace.model import RunRef
from lamina.workspace.open_files import OpenRunFiles

SCHEMA = StateSchema(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))


def written(path: Path, value: int = 0) -> RunRef:
    keys = pa.array(range(1000))
    batch = pa.record_batch({"k": keys, "v": pa.array([value] * 1000)})
    write_run(path, [changes(SCHEMA, batch)], SCHEMA, epochs=Epochs(1, 1))
    return RunRef(str(path), -1, 0, 0, 1, 1, 0, 2**64 - 1)


def space(tmp_path: Path) -> LocalTaskSpace:
    return LocalTaskSpace(str(tmp_path), b"", str(tmp_path))


def test_a_worker_that_opens_a_run_again_has_its_indexes_still(tmp_path: Path) -> None:
    ref = written(tmp_path / "a.run")
    first, again = (space(tmp_path).open_run(ref) for _ in range(2))
    (one,), (other,) = (stack([PlacedRun(run, EVERYTHING)], EVERYTHING) for run in (first, again))
    assert one.indexes
    assert all(a is b for a, b in zip(one.indexes, other.indexes, strict=True))


def test_a_part_of_a_run_has_indexes_of_its_own(tmp_path: Path) -> None:
    """Those of whole blocks say where rows stand that the part does not have."""
    run = space(tmp_path).open_run(written(tmp_path / "a.run"))
    half = SlotRange(0, 2**63 - 1)
    (part,) = stack([PlacedRun(run, EVERYTHING)], half)
    assert len(part.indexes) == len(run.indexes) == 1
    assert part.indexes[0] is not run.indexes[0]


def test_another_file_of_the_same_name_is_opened_anew(tmp_path: Path) -> None:
    before = space(tmp_path).open_run(written(tmp_path / "a.run", value=1))
    after = space(tmp_path).open_run(written(tmp_path / "a.run", value=2))
    assert before.load(0).column("v")[0].as_py() == 1
    assert after.load(0).column("v")[0].as_py() == 2


def test_a_file_that_was_damaged_after_it_was_proven_is_proven_again(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    ref = written(path)
    block = space(tmp_path).open_run(ref).blocks[0]
    space(tmp_path).open_run(ref).load(0)
    with path.open("r+b") as file:
        file.seek(block.offset + block.size // 2)
        file.write(b"\xff" * 8)
    os.utime(path, ns=(1, 1))
    with pytest.raises(RunDamaged):
        space(tmp_path).open_run(ref).load(0)


def test_a_file_that_has_gone_is_missed_though_it_was_open(tmp_path: Path) -> None:
    ref = written(tmp_path / "a.run")
    space(tmp_path).open_run(ref)
    Path(ref.path).unlink()
    with pytest.raises(LaminaError):
        space(tmp_path).open_run(ref)


def test_files_that_were_deleted_are_not_kept_open_for_ever(tmp_path: Path) -> None:
    """What is mapped takes up space on the disk, whether it has a name or not."""
    files = OpenRunFiles()
    paths = [tmp_path / f"{number}.run" for number in range(3)]
    for path in paths:
        written(path)
    files.open(paths[0])
    files.open(paths[1])
    paths[0].unlink()
    files.open(paths[1])
    files.open(paths[2])
    assert len(files) == 2
    assert not _mapped(paths[0])
    assert _mapped(paths[1])


def test_no_descriptor_is_kept_for_an_open_run_file(tmp_path: Path) -> None:
    files = OpenRunFiles()
    for number in range(5):
        written(tmp_path / f"{number}.run")
        files.open(tmp_path / f"{number}.run").load(0)
    assert len(files) == 5
    assert not [path for path in descriptors() if path.startswith(str(tmp_path))]


def descriptors() -> Iterator[str]:
    """The files that this process has open; others may be closed while they are listed."""
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(each.readlink())


def test_the_least_recently_used_file_is_let_go_where_there_are_too_many(tmp_path: Path) -> None:
    files = OpenRunFiles(open_max=2)
    first, second, third = (tmp_path / f"{number}.run" for number in range(3))
    for path in (first, second, third):
        written(path)
    kept = files.open(first)
    files.open(second)
    files.open(first)
    files.open(third)
    assert len(files) == 2
    assert files.open(first) is kept


def _mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()
