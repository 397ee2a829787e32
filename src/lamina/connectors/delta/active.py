"""Data files of one version of a table: which there are, how each is read and how it is removed.

The log names files by percent-encoded paths. deltalake 1.6.6 encodes the path of a remove by
itself, so it is given the decoded path; and where its spelling is not that of the log the remove
would hit nothing: the file would stay, and the rows that were written again be there twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from lamina.errors import Corrupt, Refused

_KEPT = "!$&'()+,-./:;=@_~"  # by deltalake, beside the letters and digits of ASCII


def logged(path: str) -> str:
    """What deltalake writes into the log for the *path* of an action."""
    return quote(path, safe=_KEPT)


def path_to_remove(log_path: str) -> str | None:
    """The path that deltalake writes as *log_path*; None if there is none."""
    path = unquote(log_path)
    return path if logged(path) == log_path else None


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """One data file, by its path as the log has it."""

    path: str
    fragment: ds.ParquetFileFragment
    schema: pa.Schema

    @property
    def is_removable(self) -> bool:
        return path_to_remove(self.path) is not None

    def read(self, columns: Iterable[str] | None = None) -> pa.Table:
        wanted = None if columns is None else list(columns)
        return self.fragment.to_table(schema=self.schema, columns=wanted)

    def row_groups(self) -> Iterator[pa.Table]:
        """All rows, one row group of the file after the other."""
        for group in self.fragment.split_by_row_group():
            yield group.to_table(schema=self.schema)

    def removed(self, now_ms: int, where: str, *, data_change: bool) -> RemoveAction:
        path = path_to_remove(self.path)
        if path is None:
            raise Refused(
                f"rows of the file {self.path!r} cannot be replaced: deltalake would spell its "
                f"path {logged(unquote(self.path))!r}, and not remove it",
                where=where,
                advice="Write the rows into a new table with deltalake, and use that. deltalake's"
                " own delete, overwrite and optimize leave this file in the table, too",
            )
        return RemoveAction(path, data_change, now_ms)


def log_paths(table: DeltaTable) -> set[str]:
    return set(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())


def active_files(
    table: DeltaTable, wanted: Callable[[pa.Table], pa.ChunkedArray], where: str
) -> Iterator[ActiveFile]:
    """Those that are *wanted* by what the log says of them."""
    adds = pa.table(table.get_add_actions(flatten=True))
    paths = adds.filter(wanted(adds))["path"].to_pylist()
    # As nanoseconds, which INT96 has, there is no time after 2262; a Delta table has microseconds.
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    dataset = table.to_pyarrow_dataset(parquet_read_options=options)
    # A filter here would leave out too many: see stats.py.
    fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
    for path in paths:
        fragment = fragments.get(unquote(path))
        if fragment is None:
            message = f"the log names the file {path!r}, and deltalake does not find it"
            advice = "Write the rows into a new table with deltalake, and use that"
            raise Refused(message, where=where, advice=advice)
        yield ActiveFile(path, fragment, dataset.schema)


def check_removes(removed: Iterable[str], active: set[str], where: str) -> None:
    """Every remove is of a file that is there; *removed* are paths as the log has them."""
    missed = sorted(set(removed) - active)
    if missed:
        message = f"a remove of {missed[0]!r} hits no file of the table"
        raise Refused(message, where=where, advice="Report this; nothing was written")


def check_entry(entry: bytes | None, removed: Iterable[str], where: str) -> None:
    """What a version did remove, by its entry in the log. Corrupt if that is something else."""
    if entry is None:
        return  # cleaned up already
    actions = [json.loads(line) for line in entry.splitlines() if line.strip()]
    found = {action["remove"]["path"] for action in actions if "remove" in action}
    if found != set(removed):
        missed = sorted(set(removed) ^ found)
        raise Corrupt(
            f"the last version of the table did not remove {missed[0]!r} as it should: rows may "
            "be there twice",
            where=where,
            advice="Restore the version before it, in Spark: RESTORE TABLE ... TO VERSION AS OF,"
            " and use the deltalake that Lamina asks for",
        )
