"""A source of files that is run from elsewhere, by a link, or after a move: each is read once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.connectors.file_status import FileStatus
from lamina.connectors.files import FileRange
from lamina.engine.model import MemoryChange, Offset, SourceRange
from lamina.engine.ports import Limits, Source, SourceMemory
from lamina.errors import Refused, StateChanged
from lamina.state.schema import StateSchema
from tests.engine.pipelines import kill, run_out
from tests.engine.test_file_sources import (
    FilesWorld,
    assert_each_was_read_once,
    filled,
)

OLD = StateSchema(
    pa.schema([pa.field("path", pa.string(), nullable=False)]),
    pa.schema({"size": pa.int64(), "changed_us": pa.int64()}),
)
"""The memory of files as it was before paths were kept below the folder."""


@dataclass
class OldFiles:
    """The source as it was: whole paths as they were given, size and time."""

    name: str
    folder: Path
    memory: StateSchema | None = OLD

    def initial(self) -> Offset:
        return {"files": "0"}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        known = {path for batch in memory.scan() for path in batch.column("path").to_pylist()}
        listed = sorted(str(path) for path in self.folder.absolute().glob("*.parquet"))
        taken = [path for path in listed if path not in known][: limits.files]
        rows = [
            {
                "path": path,
                "size": Path(path).stat().st_size,
                "changed_us": Path(path).stat().st_mtime_ns // 1000,
            }
            for path in taken
        ]
        files = tuple(FileStatus(path, 0, 0) for path in taken)
        learned = MemoryChange(pa.RecordBatch.from_pylist(rows, OLD.row)) if rows else None
        end = {"files": str(int(start["files"]) + len(taken))}
        return SourceRange(self.name, start, end, FileRange(self.folder, files), learned)

    def confirm(self, planned: SourceRange) -> None:
        """Nothing changes here."""

    def acknowledge(self, offset: Offset) -> None:
        """Nothing is held."""


class OldWorld(FilesWorld):
    def sources(self) -> dict[str, Source]:
        return {name: OldFiles(name, self.folder(name)) for name in ("trades", "orders")}


def elsewhere(root: Path) -> Path:
    """As `lamina run ../proj/p.sql` from a folder beside it."""
    (root.parent / "beside").mkdir()
    return root.parent / "beside" / ".." / root.name


def linked(root: Path) -> Path:
    link = root.parent / "link"
    link.symlink_to(root)
    return link


def moved(root: Path) -> Path:
    return root.rename(root.parent / "moved")


def copied(root: Path) -> Path:
    """With other inodes; the project is gone afterwards."""
    there = shutil.copytree(root, root.parent / "copied")  # keeps times
    shutil.rmtree(root)
    return Path(there)


WAYS = [elsewhere, linked, moved, copied]


@pytest.mark.parametrize("checkpointed", [False, True], ids=["from the log", "checkpointed"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", [FilesWorld, OldWorld], ids=["home of today", "older home"])
def test_a_project_that_is_reached_by_another_path_reads_no_file_again(
    kind: type[FilesWorld], way: Callable[[Path], Path], checkpointed: bool, tmp_path: Path
) -> None:
    """Totals doubled, with exit 0: files were known by the path as it was given."""
    before = filled(tmp_path / "proj")
    engine = kind(before.root, store=before.store, tables=before.tables).open()
    run_out(engine, epochs=4)
    if checkpointed:
        engine.checkpoint()
    kill(engine)
    after = FilesWorld(way(before.root), store=before.store, tables=before.tables)
    engine = after.open()
    run_out(engine, epochs=1)  # what the memory has said by whole paths it says by short ones now
    engine.checkpoint()
    kill(engine)
    after.root = moved(after.root.resolve())
    after.finish()
    assert_each_was_read_once(after)


def old_home(tmp_path: Path) -> FilesWorld:
    """All files were read by the older version."""
    world = filled(tmp_path / "proj")
    OldWorld(world.root, store=world.store, tables=world.tables).finish()
    return world


def test_an_older_version_refuses_what_it_would_misread(tmp_path: Path) -> None:
    """It would take short paths for files that it has not read."""
    world = old_home(tmp_path)
    world.put(99, [("k0", 1, 0)])
    world.finish()
    with pytest.raises(StateChanged, match="inode"):
        OldWorld(world.root, store=world.store, tables=world.tables).open()


def test_a_changed_file_is_noticed_after_a_move_of_an_older_home(tmp_path: Path) -> None:
    world = old_home(tmp_path)
    world.root = moved(world.root)
    changed = world.put(3, [("k0", 1, 0), ("k1", 1, 0)])
    engine = world.open()
    with pytest.raises(Refused, match="has changed since") as raised:
        engine.step()
    assert raised.value.where == str(changed)
    kill(engine)


def test_a_file_that_was_read_from_another_folder_by_an_older_version_is_refused(
    tmp_path: Path,
) -> None:
    """Folder and name of it have changed: it is neither read again nor passed over in silence."""
    world = old_home(tmp_path)
    for name in ("orders", "trades"):
        world.folder(name).rename(world.root / f"{name} of today")
    world.suffix = " of today"
    engine = world.open()
    with pytest.raises(Refused, match="may be the same file") as raised:
        engine.step()
    assert raised.value.where == str(world.folder("orders") / "0000.parquet")
    kill(engine)
    shutil.rmtree(world.folder("orders"))
    shutil.rmtree(world.folder("trades"))
    world.put(0, [("new", 5, 0)])
    os.utime(world.folder("orders") / "0000.parquet", (7, 7))
    world.finish()
    assert world.newest("totals")["new"] == ("new", 5, 1)


def replaced(path: Path) -> None:
    """Other rows, renamed over it."""
    other = path.with_name("_other")
    other.write_bytes(path.read_bytes()[::-1])
    shutil.copystat(path, other)
    other.replace(path)


def written_over(path: Path) -> None:
    status = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("how", [replaced, written_over], ids=lambda how: how.__name__)
@pytest.mark.parametrize("running", [True, False], ids=["running", "at a start"])
def test_a_file_replaced_with_the_same_size_and_time_is_noticed(
    running: bool, how: Callable[[Path], None], tmp_path: Path
) -> None:
    world = filled(tmp_path)
    engine = world.open()
    run_out(engine)
    if not running:
        kill(engine)
    path = world.folder("orders") / "0002.parquet"
    how(path)
    if not running:
        engine = world.open()
    with pytest.raises(Refused, match="has changed since") as raised:
        engine.step()
    assert raised.value.where == str(path)
    kill(engine)


def given_rights(path: Path) -> None:
    path.chmod(0o600)


def hard_linked(path: Path) -> None:
    os.link(path, path.with_name("_backup"))


def restored(path: Path) -> None:
    other = path.with_name("_other")
    shutil.copy2(path, other)
    other.replace(path)


@pytest.mark.parametrize("how", [given_rights, hard_linked, restored], ids=lambda how: how.__name__)
def test_a_file_that_only_looks_replaced_stops_nothing(
    how: Callable[[Path], None], tmp_path: Path
) -> None:
    world = filled(tmp_path)
    engine = world.open()
    run_out(engine)
    how(world.folder("orders") / "0002.parquet")
    assert engine.step() is None
    kill(engine)
    world.finish()
    assert_each_was_read_once(world)


@pytest.mark.parametrize(
    ("name", "said", "shown"),
    [
        (b"a:b.parquet", "has a colon", "a:b.parquet"),
        (b"bad\xff.parquet", "not valid UTF-8", "bad\\xff.parquet"),
    ],
    ids=["colon", "not UTF-8"],
)
def test_a_file_that_cannot_be_called_by_its_name_is_refused_by_it(
    name: bytes, said: str, shown: str, tmp_path: Path
) -> None:
    """One in a hundred files stopped the pipeline, and nothing said which."""
    world = filled(tmp_path)
    odd = os.path.join(os.fsencode(world.folder("orders")), name)  # noqa: PTH118  bytes
    Path(os.fsdecode(odd)).touch()
    engine = world.open()
    with pytest.raises(Refused, match=said) as raised:
        run_out(engine)
    assert raised.value.where == str(world.folder("orders") / shown)
    Path(os.fsdecode(odd)).unlink()
    run_out(engine)
    kill(engine)
    world.finish()
    assert_each_was_read_once(world)
