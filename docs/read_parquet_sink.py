"""All rows of a Parquet sink in an object store, by its log: needs obstore and pyarrow, not Lamina.

    python read_parquet_sink.py s3://bucket/path

Which files count is in `_lamina/log/`: an entry for each epoch, numbered from 1 on without a hole.
`_lamina/folds/WIDTH/` has the files of WIDTH entries in one object. What a rewind has taken back is
still named there: the last entry says which epochs do not count any more.
"""

from __future__ import annotations

import json
import sys
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import from_url

KNOWN = 2
"""The newest version of an entry that this reader knows."""


def files(store: Any) -> list[dict[str, Any]]:
    """path, size, sha256 and rows of every file that counts, oldest first."""
    named, taken_back = all_files(store)
    return [file for file in named if is_shown(int(file["path"].split("/")[1]), taken_back)]


def all_files(store: Any) -> tuple[list[dict[str, Any]], list[dict[str, int]]]:
    """Every file that an entry names; and the rewinds since, by the last entry."""
    named: list[dict[str, Any]] = []
    number = 1
    while True:
        for width, folder in ((10_000, "folds/10000"), (100, "folds/100"), (1, "log")):
            if (number - 1) % width == 0:
                try:
                    found = json.loads(get(store, f"_lamina/{folder}/{number:020d}.json"))
                except FileNotFoundError:
                    continue
                named += found["files"]
                number += width
                break
        else:
            break
    last = json.loads(get(store, f"_lamina/log/{number - 1:020d}.json")) if number > 1 else {}
    if last.get("version", 1) > KNOWN:
        raise SystemExit("a newer Lamina has written this: get the reader that belongs to it")
    return named, last.get("taken_back", [])


def is_shown(epoch: int, taken_back: list[dict[str, int]]) -> bool:
    """Whether a file of *epoch* still counts after these rewinds, which are oldest first."""
    at: int | None = None
    for rewind in reversed(taken_back):
        if at is None or rewind["epoch"] <= at:
            if epoch > rewind["epoch"]:
                break
            at = rewind["to"]
    return at is None or epoch <= at


def get(store: Any, key: str) -> bytes:
    return bytes(store.get(key).bytes())


def read(store: Any) -> pa.Table:
    paths = [file["path"] for file in files(store)]
    tables = [pq.read_table(BytesIO(get(store, path))) for path in paths]
    return pa.concat_tables(tables)


if __name__ == "__main__":
    sys.stdout.write(f"{read(from_url(sys.argv[1]))}\n")
