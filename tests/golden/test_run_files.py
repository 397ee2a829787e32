"""Run files as they were first written: read for ever, with these rows (FORMAT.md section 8).

Arrow's own bytes may change with its version, so a run that is written today is compared in what
is ours: the footer, without the offsets and checksums of Arrow's messages.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lamina.connectors.file_status import MEMORY, from_rows
from lamina.format.run_footer import Footer
from lamina.state.changes import changes
from lamina.state.merge import Merge
from lamina.state.partition import StatePartition
from lamina.state.run_file import Epochs, check_run, footer_of, open_run
from lamina.state.schema import StateSchema
from tests.support.states import run_bytes

HERE = Path(__file__).parent / "state"
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Golden:
    """A file, and what has to be in it."""

    name: str
    schema: StateSchema
    rows: tuple[tuple[Any, ...], ...]  # slot, operation, key and value columns, as in the file
    digest: str
    epochs: Epochs
    floor: int | None = None

    @property
    def path(self) -> Path:
        return HERE / f"{self.name}.run"

    def written(self) -> bytes:
        """The same rows, hashed, sorted and written today; they arrive in another order."""
        backwards = self.rows[::-1]
        names = self.schema.row.names
        given = [dict(zip(names, row[2:], strict=True)) for row in backwards]
        batch = changes(
            self.schema,
            pa.RecordBatch.from_pylist(given, pa.schema(list(self.schema.row))),
            deletes=np.array([row[1] == 1 for row in backwards], np.bool_),
        )
        return run_bytes([batch], self.schema, epochs=self.epochs, floor=self.floor)


KEYS = Golden(
    name="run-keys",
    schema=StateSchema(
        pa.schema(
            [
                ("id", pa.int64()),
                ("name", pa.string()),
                ("ratio", pa.float64()),
                ("price", pa.decimal128(12, 2)),
                ("at", pa.timestamp("us", "UTC")),
                ("pair", pa.struct([("a", pa.int32()), ("b", pa.string())])),
                ("tags", pa.list_(pa.string())),
            ]
        ),
        pa.schema([("total", pa.int64()), ("best", pa.float32())]),
    ),
    rows=(
        (0x5400000000000000, 0, None, None, None, None, None, None, None, None, math.inf),
        (
            0x803501FFD301836C,
            0,
            1,
            "one",
            0.0,
            Decimal("1.50"),
            NOON,
            {"a": 1, "b": "x"},
            ["p", None],
            10,
            0.5,
        ),
        (
            0x89F7C4EC059BC7FF,
            0,
            2**63 - 1,
            "é\U0001f600",
            -2.5,
            Decimal("9999999999.99"),
            NOON,
            None,
            ["q"],
            0,
            1.0,
        ),
        (
            0xBFA92AD16E63A7BC,
            0,
            -1,
            "",
            math.nan,
            Decimal("-0.01"),
            NOON,
            {"a": None, "b": None},
            [],
            -10,
            None,
        ),
    ),
    digest="ae6cd44fd507d2de9e797cacddc2f48a163b18792b450c7e7f515a671356eea4",
    epochs=Epochs(1, 1),
)
WINDOWS = Golden(
    name="run-windows",
    schema=StateSchema(
        pa.schema([("user", pa.string()), ("start", pa.timestamp("us", "UTC"))]),
        pa.schema([("n", pa.int64())]),
        "start",
    ),
    rows=(
        (0x36337EE27C4966D5, 0, "ann", NOON, 3),
        (0x3A796384FFF93362, 0, "bob", NOON - dt.timedelta(hours=1), 5),
        (0x72EEB002A7B6ABAB, 1, "bob", NOON, None),
        (0xB3306208C52D5DBC, 0, "eve", None, 7),
    ),
    digest="a92bdf82c1627eaec64dfc5f87a571c7d07db7faa33490ca628354f6a2531429",
    epochs=Epochs(3, 9),
    floor=1_767_353_400_000_000,  # half an hour before noon
)
EMPTY = Golden(
    name="run-empty",
    schema=StateSchema(pa.schema([("k", pa.int32())]), pa.schema([("t", pa.int64())]), "t"),
    rows=(),
    digest="98dca3a38c3b53fe69186273007d117477b23ae9870978c8199a18bd95070066",
    epochs=Epochs(4, 4),
    floor=-5,
)
PATH = pa.schema([pa.field("path", pa.string(), nullable=False)])
OLD_FILES = Golden(  # as it was before paths were below the folder
    name="run-files-old",
    schema=StateSchema(PATH, pa.schema({"size": pa.int64(), "changed_us": pa.int64()})),
    rows=(
        (0x43BF97F298419025, 0, "/data/in/day=1/é.json", 0, 1_767_353_400_000_001),
        (0xD3DAC993EA1EDC72, 0, "/data/in/a.json", 120, 1_767_353_400_000_000),
    ),
    digest="62b81a66d97424f767c71205a270d058f4cc2b71d6c97fb3b0071f54cbdd5405",
    epochs=Epochs(1, 2),
)
FILES = Golden(
    name="run-files",
    schema=MEMORY,
    rows=(
        (
            0x53E24B305C19B7D9,
            0,
            "a.json",
            120,
            1_767_353_400_000_000,
            2**63,
            1_767_353_400_000_002,
            bytes(16),
        ),
        (0x563582C0DFE361B2, 0, "day=1/é.json", 0, 1_767_353_400_000_001, None, None, None),
        (0xD3DAC993EA1EDC72, 1, "/data/in/a.json", None, None, None, None, None),
    ),
    digest="8b88d822b2d07f6c1ad8606e46e08375407ff40edad4258c8b45b729b7af0b03",
    epochs=Epochs(3, 3),
)
MEANINGS = Golden(  # of a pipeline, which says what its columns hold
    name="run-meanings",
    schema=StateSchema(
        pa.schema([("k0", pa.string()), ("k1_end", pa.timestamp("us", "UTC"))]),
        pa.schema([("p1", pa.int64()), ("p0", pa.int64())]),
        "k1_end",
        (Merge("count", ("p1",)), Merge("sum", ("p0",))),
        "one",
        ("symbol", "window(ts, '1 minute').end", "count(*)", "sum(price * volume)"),
    ),
    rows=((0x36337EE27C4966D5, 0, "ann", NOON, 3, 7),),
    digest="ce5d45b5cd8b59eecbd2bfac697a048ee0e33f8506d1df8b649e4a4cff1117d8",
    epochs=Epochs(1, 1),
)
TIMERS = Golden(  # in the order of time, where their keys without the time are
    name="run-timers",
    schema=StateSchema(
        pa.schema([("time", pa.timestamp("us", "UTC")), ("user", pa.string())]),
        pa.schema([]),
        "time",
        by_time=True,
    ),
    rows=(
        (0x4880647667272140, 0, NOON, "ann"),
        (0x48806476749D0672, 0, NOON + dt.timedelta(hours=1), "ann"),
        (0x5480647667276F6E, 0, NOON, None),
        (0xAB8064766727F828, 0, NOON, "bob"),
        (0xB37FFE351734C67F, 0, dt.datetime(1969, 1, 1, tzinfo=dt.UTC), "eve"),
    ),
    digest="0b154cd33f9b872e6507e0873d924c750e3ac91a6259e594f3441676f652632a",
    epochs=Epochs(2, 5),
    floor=1_767_268_800_000_000,
)
GROUPS = Golden(  # found by the first column of the key
    name="run-groups",
    schema=StateSchema(
        pa.schema(
            [("user", pa.string()), ("_until", pa.timestamp("us", "UTC")), ("_id", pa.int64())]
        ),
        pa.schema([("_right", pa.bool_()), ("l0", pa.int32()), ("r0", pa.string())]),
        "_until",
        group=1,
    ),
    rows=(
        (0x48635D80D12B22EE, 0, "ann", NOON, 134217728, False, 1, None),
        (0x48635D80D1664658, 0, "ann", NOON, 134217730, False, 1, None),
        (0x48635D80D172DE7C, 0, "ann", NOON + dt.timedelta(hours=1), 134217729, True, None, "é"),
        (0xAB5208B45B74D759, 0, "bob", NOON, 134217731, True, None, ""),
    ),
    digest="dc7de5db8466e3ddc4b9b327a7cd68c385467440710c25279e6121212b609a8b",
    epochs=Epochs(2, 2),
    floor=1_767_268_800_000_000,
)
ALL = pytest.mark.parametrize(
    "golden",
    [KEYS, WINDOWS, EMPTY, OLD_FILES, FILES, MEANINGS, TIMERS, GROUPS],
    ids=lambda golden: golden.name,
)


def shown(value: Any) -> Any:
    """NaN is not equal to itself, and here it has to be."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def ours(footer: Footer) -> Footer:
    """A footer without what depends on the version of Arrow."""
    blocks = tuple(replace(block, offset=0, size=0, crc=0) for block in footer.blocks)
    return replace(footer, blocks=blocks, schema_size=0, schema_crc=0)


@ALL
def test_old_runs_have_the_rows_they_had(golden: Golden) -> None:
    run = open_run(golden.path)
    check_run(run)
    assert run.schema == golden.schema
    assert (run.floor, Epochs(run.first_epoch, run.last_epoch)) == (golden.floor, golden.epochs)
    batches = [run.load(index) for index in range(len(run.blocks))]
    rows = [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]
    assert [tuple(map(shown, row)) for row in rows] == [
        tuple(map(shown, row)) for row in golden.rows
    ]


@ALL
def test_old_footers_are_the_bytes_that_are_written_for_them(golden: Golden) -> None:
    data = golden.path.read_bytes()
    footer = footer_of(pa.py_buffer(data), golden.name)
    assert footer.digest == golden.digest
    assert data.endswith(footer.encode())


@ALL
def test_the_same_rows_are_written_in_the_same_order_to_the_same_slots(golden: Golden) -> None:
    old = footer_of(pa.py_buffer(golden.path.read_bytes()), golden.name)
    new = footer_of(pa.py_buffer(golden.written()), golden.name)
    assert ours(new).encode() == ours(old).encode()


def test_old_keys_are_found_by_todays_hashes() -> None:
    state = StatePartition(KEYS.schema, [open_run(KEYS.path)])
    names = KEYS.schema.key.names
    asked = [dict(zip(names, row[2:], strict=False)) for row in KEYS.rows]
    looked = state.get(pa.RecordBatch.from_pylist(asked, pa.schema(list(KEYS.schema.key))))
    assert looked.found.all()
    assert looked.values.column("total").to_pylist() == [row[-2] for row in KEYS.rows]


def test_an_old_floor_and_an_old_delete_still_hide() -> None:
    state = StatePartition(WINDOWS.schema, [open_run(WINDOWS.path)])
    rows = [row for batch in state.scan() for row in batch.to_pylist()]
    assert {row["user"]: row["n"] for row in rows} == {"ann": 3, "eve": 7}


def test_old_memories_of_files_are_read_as_those_of_today() -> None:
    """Columns that were not there are null."""
    state = StatePartition(MEMORY, [open_run(OLD_FILES.path), open_run(FILES.path)])
    files = {file.path: file for batch in state.scan() for file in from_rows(batch)}
    assert set(files) == {"/data/in/day=1/é.json", "day=1/é.json", "a.json"}
    assert files["/data/in/day=1/é.json"].inode is None
