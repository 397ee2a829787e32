"""All rows of a Parquet sink in an object store, by its log: needs obstore and pyarrow, not Lamina.

    python read_parquet_sink.py s3://bucket/path

Which files count is in `_lamina/log/`: an entry for each epoch, numbered from 1 on without a hole.
`_lamina/folds/WIDTH/` has the files of WIDTH entries in one object. What a rewind has taken back is
still named there: the last entry says which epochs do not count any more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import from_url


def files(store: Any) -> Iterator[dict[str, Any]]:
    """path, size, sha256 and rows of every file that counts, oldest first."""
    named = list(all_files(store))
    rewinds = named.pop()
    yield from (file for file in named if is_shown(int(file["path"].split("/")[1]), rewinds))


def is_shown(epoch: int, rewinds: list[dict[str, int]]) -> bool:
    """Whether an epoch still counts after all rewinds, which are oldest first."""
    at: int | None = None
    for rewind in reversed(rewinds):
        if at is None or rewind["epoch"] <= at:
            if epoch > rewind["epoch"]:
                break
            at = rewind["to"]
    return at is None or epoch <= at


def all_files(store: Any) -> Iterator[Any]:
    """Every file that an entry names; then the rewinds that the last entry knows."""
    number = 1
    while True:
        for width, folder in ((10_000, "folds/10000"), (100, "folds/100"), (1, "log")):
            if (number - 1) % width == 0:
                try:
                    found = store.get(f"_lamina/{folder}/{number:020d}.json").bytes()
                except FileNotFoundError:
                    continue
                yield from json.loads(bytes(found))["files"]
                number += width
                break
        else:
            if number == 1:
                yield []
                return
            last = json.loads(bytes(store.get(f"_lamina/log/{number - 1:020d}.json").bytes()))
            if last["version"] > 2:
                raise SystemExit("this sink was written by a newer Lamina: get its version of me")
            yield last.get("taken_back", [])
            return


def read(store: Any) -> pa.Table:
    paths = [file["path"] for file in files(store)]
    tables = [pq.read_table(BytesIO(bytes(store.get(path).bytes()))) for path in paths]
    return pa.concat_tables(tables)


if __name__ == "__main__":
    sys.stdout.write(f"{read(from_url(sys.argv[1]))}\n")
