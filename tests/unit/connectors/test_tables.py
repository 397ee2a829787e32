"""Tables that are copied version by version: what counts as new, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamina.connectors.kinds import TableContext
from lamina.connectors.opening_tables import check_table, peek
from lamina.connectors.tables.files import LISTED_MAX, FileReader, find_files
from lamina.connectors.tables.spooled import TRIES, Identity, SpooledTable
from lamina.errors import BadPipeline, Refused, StoreUnavailable
from lamina.pipeline.model import Column, DeclaredTable, Option
from lamina.testing import ManualClock

COLUMNS = (Column("id", "INT"), Column("name", "STRING"))
HOUR_MS = 3_600_000


@dataclass
class Toy:
    """A table in memory; its look is a number, and so is what it is known by."""

    rows: dict[str, list[object]] = field(
        default_factory=lambda: {"id": [1, 2], "name": ["a", "b"]}
    )
    number: int = 0
    changes_while_read: int = 0
    settled: bool = True
    spooled: int = 0
    identities: int = 0
    is_closed: bool = False

    def look(self) -> int:
        return self.number

    def is_settled(self, look: int) -> bool:
        return self.settled

    def identity(self, look: int) -> Identity:
        self.identities += 1
        return self._identity()

    def spool(self, look: int, folder: Path) -> Identity:
        self.spooled += 1
        pq.write_table(pa.table(self.rows), folder / "part.parquet")
        if self.changes_while_read:
            self.changes_while_read -= 1
            self.number += 1
        return self._identity()

    def close(self) -> None:
        self.is_closed = True

    def _identity(self) -> Identity:
        return Identity({"number": str(self.number)}, {"of": "toy"}, rises="number")


def context(tmp_path: Path, options: Mapping[str, str] | None = None) -> TableContext:
    given = {"path": str(tmp_path / "items"), **(options or {})}
    table = DeclaredTable(
        "items", COLUMNS, "parquet", {name: Option.plain(each) for name, each in given.items()}
    )
    checked = check_table(table, tmp_path, file="p.sql")
    return TableContext(table, checked.given, scratch=tmp_path / "home" / "copies")


def opened(
    tmp_path: Path, toy: Toy, clock: ManualClock | None = None, **options: str
) -> SpooledTable[int]:
    return SpooledTable(context(tmp_path, options), toy, clock=clock or ManualClock())


def copies(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "home" / "copies").iterdir())


# versions


def test_a_version_is_copied_once_and_then_stays_the_same(tmp_path: Path) -> None:
    toy = Toy()
    table = opened(tmp_path, toy)
    first = table.version()
    assert table.version() is first
    assert (first.rows, toy.spooled, dict(first.identity)) == (2, 1, {"number": "0"})
    assert first.metadata == {"of": "toy", "rows": "2"}
    assert pq.read_table(first.files[0]).to_pydict() == {"id": [1, 2], "name": ["a", "b"]}
    table.confirm(first)


def test_a_new_version_takes_the_place_of_the_old_copy(tmp_path: Path) -> None:
    toy = Toy()
    table = opened(tmp_path, toy)
    table.version()
    toy.number, toy.rows = 1, {"id": [3], "name": ["c"]}
    second = table.version()
    assert (second.rows, dict(second.identity)) == (1, {"number": "1"})
    assert copies(tmp_path) == ["1"]


def test_copies_of_a_process_that_is_gone_are_removed(tmp_path: Path) -> None:
    opened(tmp_path, Toy()).version()
    left = tmp_path / "home" / "copies" / "left"
    left.mkdir()
    opened(tmp_path, Toy()).version()
    assert copies(tmp_path) == ["0"]


def test_a_look_that_is_not_settled_is_not_believed(tmp_path: Path) -> None:
    toy = Toy(settled=False)
    table = opened(tmp_path, toy)
    first = table.version()
    before = toy.identities
    assert table.version() is first
    assert toy.identities > before, "its contents were compared"
    assert toy.spooled == 1


def test_refresh_limits_how_often_somebody_looks(tmp_path: Path) -> None:
    toy, clock = Toy(), ManualClock()
    table = opened(tmp_path, toy, clock, refresh="10 minutes")
    table.version()
    toy.number = 1
    clock.wait(599)
    assert dict(table.version().identity) == {"number": "0"}
    clock.wait(1)
    assert dict(table.version().identity) == {"number": "1"}


def test_a_table_that_changes_while_it_is_copied_is_copied_again(tmp_path: Path) -> None:
    toy = Toy(changes_while_read=TRIES - 1)
    version = opened(tmp_path, toy).version()
    assert dict(version.identity) == {"number": str(TRIES - 1)}
    assert toy.spooled == TRIES
    assert copies(tmp_path) == [str(TRIES - 1)]


def test_a_table_that_never_stands_still_is_waited_for(tmp_path: Path) -> None:
    table = opened(tmp_path, Toy(changes_while_read=TRIES))
    with pytest.raises(StoreUnavailable, match="'items' changes while it is read"):
        table.version()
    assert table.version().rows == 2


@pytest.mark.parametrize("damage", ["gone", "longer"])
def test_a_copy_that_is_not_as_it_was_is_noticed_and_made_again(
    tmp_path: Path, damage: str
) -> None:
    toy = Toy()
    table = opened(tmp_path, toy)
    version = table.version()
    path = Path(version.files[0])
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(StoreUnavailable, match="not as it was written"):
        table.confirm(version)
    table.confirm(table.version())
    assert toy.spooled == 2


def test_closing_it_closes_its_reader(tmp_path: Path) -> None:
    toy = Toy()
    opened(tmp_path, toy).close()
    assert toy.is_closed


# keys


@pytest.mark.parametrize(
    ("keys", "rows", "said"),
    [
        ("id", {"id": [1, 1, 2], "name": ["a", "b", "c"]}, "2 rows of the table 'items' have"),
        ("ID", {"id": [7, 7, 7], "name": ["a", "b", "c"]}, "the key id = 7, and 1 keys"),
        ("id, name", {"id": [1, 1], "name": ["a", "a"]}, "the key id = 1, name = 'a'"),
    ],
)
def test_two_rows_with_one_key_are_named(
    tmp_path: Path, keys: str, rows: dict[str, list[object]], said: str
) -> None:
    table = opened(tmp_path, Toy(rows), keys=keys)
    with pytest.raises(Refused, match=said):
        table.version()
    assert copies(tmp_path) == []


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ("id", {"id": [1, None, None], "name": ["a", "a", "a"]}),
        ("id, name", {"id": [1, 1, 1], "name": ["a", "b", None]}),
        ("name", {"id": [], "name": []}),
    ],
)
def test_keys_that_tell_rows_apart(
    tmp_path: Path, keys: str, rows: dict[str, list[object]]
) -> None:
    assert opened(tmp_path, Toy(rows), keys=keys).version().rows == len(rows["id"])


def test_an_unknown_key_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match=r"the key 'nmae'.*'name'"):
        context(tmp_path, {"keys": "nmae"})


# files


def write(path: Path, text: str, at_ms: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def reader(tmp_path: Path, clock: ManualClock | None = None) -> FileReader:
    return FileReader(context(tmp_path), clock=clock or ManualClock())


def test_a_version_of_files_is_known_by_their_contents(tmp_path: Path) -> None:
    items = reader(tmp_path)
    write(tmp_path / "items" / "a", "one", 1)
    write(tmp_path / "items" / "b" / "c", "two", 1)
    first = items.identity(items.look())
    assert (first.offsets["files"], first.offsets["bytes"]) == ("2", "6")
    write(tmp_path / "items" / "a", "one", 2)
    assert items.identity(items.look()).offsets == first.offsets, "the same bytes, written again"
    write(tmp_path / "items" / "a", "uno", 2)
    assert items.identity(items.look()).offsets != first.offsets
    assert list(first.metadata) == ["file a", "file b/c"]
    assert first.metadata["file a"].startswith("3 bytes, 1000 us, ")


def test_many_files_are_one_digest(tmp_path: Path) -> None:
    for number in range(LISTED_MAX + 1):
        write(tmp_path / "items" / str(number), "x")
    items = reader(tmp_path)
    assert items.identity(items.look()).metadata == {}


def test_a_look_sees_size_time_and_other_files(tmp_path: Path) -> None:
    items, file = reader(tmp_path), tmp_path / "items" / "a"
    write(file, "one", 1)
    first = items.look()
    assert items.look() == first
    write(tmp_path / "items" / "_marker", "x")
    write(tmp_path / "items" / ".hidden", "x")
    assert items.look() == first
    write(file, "two", 2)
    assert items.look() != first


def test_a_file_that_was_just_written_may_be_written_again(tmp_path: Path) -> None:
    clock = ManualClock()
    items = reader(tmp_path, clock)
    write(tmp_path / "items" / "a", "one", clock.now_ms())
    assert not items.is_settled(items.look())
    clock.wait(60)
    assert items.is_settled(items.look())


def test_one_file_can_be_a_table(tmp_path: Path) -> None:
    write(tmp_path / "items", "x")
    found = find_files("items", tmp_path / "items", ManualClock())
    assert [each.path for each in found.files] == ["items"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        ((), "is not there"),
        (("items/",), "has no files"),
        (("items/_SUCCESS",), "has no files"),
        (("items/a", "items/_temporary/0/b"), "is being written"),
    ],
)
def test_a_table_that_is_not_whole_is_waited_for(
    tmp_path: Path, make: tuple[str, ...], said: str
) -> None:
    """An empty folder is one that is about to be filled: no rows would be a guess."""
    for each in make:
        if each.endswith("/"):
            (tmp_path / each).mkdir()
        else:
            write(tmp_path / each, "x")
    with pytest.raises(StoreUnavailable, match=said):
        reader(tmp_path).look()


def test_a_file_that_goes_while_it_is_read_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "items" / "a", "one")
    items = reader(tmp_path)
    look = items.look()
    (tmp_path / "items" / "a").unlink()
    with pytest.raises(StoreUnavailable, match="has gone while it was read"):
        items.identity(look)


def test_a_folder_that_contains_itself_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "items" / "a", "one")
    (tmp_path / "items" / "again").symlink_to(tmp_path / "items")
    with pytest.raises(Refused, match="contains itself"):
        reader(tmp_path).look()


@pytest.mark.parametrize(
    ("columns", "said"),
    [({"id": [1]}, "lacks the column 'name'"), (None, "is not Parquet")],
)
def test_a_parquet_file_without_a_column_is_named(
    tmp_path: Path, columns: dict[str, list[int]] | None, said: str
) -> None:
    (tmp_path / "items").mkdir()
    path = tmp_path / "items" / "a.parquet"
    if columns is None:
        path.write_bytes(b"not Parquet")
    else:
        pq.write_table(pa.table(columns), path)
    items = reader(tmp_path)
    with pytest.raises(Refused, match=said) as caught:
        items._check_columns(items.look())
    assert "a.parquet" in str(caught.value)


def test_columns_in_the_names_of_folders_count(tmp_path: Path) -> None:
    folder = tmp_path / "items" / "NAME=x"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"Id": [1]}), folder / "a.parquet")
    items = reader(tmp_path)
    items._check_columns(items.look())


# options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heder": "true"}, "heder"),
        ({"refresh": "often"}, "refresh 'often'"),
        ({"mode": "PERMISSIVE"}, "the option 'mode'"),
        ({"path": ""}, "no path"),
    ],
)
def test_options_that_would_not_work_are_refused(
    tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(BadPipeline, match=said):
        context(tmp_path, options)


def test_an_unknown_format_is_told_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match=r"'xml', which is not known.*parquet, csv, json"):
        check_table(DeclaredTable("items", COLUMNS, "xml"), tmp_path)


def test_what_can_be_told_without_reading(tmp_path: Path) -> None:
    table = context(tmp_path).table
    assert peek(table, tmp_path) is None
    write(tmp_path / "items" / "a", "four")
    found = peek(table, tmp_path)
    assert found is not None
    assert (found.version, found.size) == ("1 files", 4)
