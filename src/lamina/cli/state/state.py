"""`lamina state`, also called `inspect`: keyed state at any checkpoint or epoch, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import click
import pyarrow as pa

from lamina.checkpoint.progress import Report, silent
from lamina.cli.state.rows import (
    TABLE_ROWS,
    first_rows,
    json_rows,
    print_csv,
    print_json,
    print_table,
)
from lamina.cli.state.target import (
    REFERENCE,
    StateTarget,
    columns_text,
    info_shape,
    opened,
    parse_keys,
    state_target,
    view_shape,
    view_text,
)
from lamina.cli.support import shapes
from lamina.cli.support.screen import Screen, json_option
from lamina.cli.support.words import counted, size
from lamina.inspect import OperatorInfo, View, parse_key
from lamina.inspect.conditions import parse_condition
from lamina.inspect.export import limited, write_parquet
from lamina.inspect.reach import as_of
from lamina.inspect.where import Where


def _time(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """A time as milliseconds since 1970."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter("not a time in ISO 8601, such as 2026-11-19T14:00:00") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


COLUMNS = ("OPERATOR", ">P", "KEY", "VALUE", ">ROWS STORED", ">KEYS", ">RUNS", ">SIZE")


@click.command("state")
@state_target
@click.argument("operator", metavar="[STREAM]", required=False)
@click.option(
    "--at", metavar=REFERENCE, help="Which state to show; default: the newest checkpoint."
)
@click.option(
    "--as-of",
    "as_of_ms",
    metavar="TIME",
    callback=_time,
    help="Show the newest checkpoint begun by this time (ISO 8601, UTC without a zone), by the "
    "clocks of the processes that made them.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help="Show only rows for which this holds: symbol = 'A' AND sum(volume) > 100.",
)
@click.option(
    "--key",
    "keys",
    metavar="COLUMN=VALUE",
    multiple=True,
    callback=parse_keys,
    help="Show only rows with this key; may be repeated. COLUMN alone means null.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help="Maximum number of rows (20 for a table).",
)
@click.option("--count", is_flag=True, help="Show only the number of keys; this reads all of them.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV.")
@click.option(
    "--parquet",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the rows to a new Parquet file.",
)
@json_option
def state_command(
    *,
    target: StateTarget,
    operator: str | None,
    at: str | None,
    as_of_ms: int | None,
    where: str | None,
    keys: Mapping[str, str | None],
    limit: int | None,
    count: bool,
    as_csv: bool,
    parquet: Path | None,
    screen: Screen,
) -> None:
    """Show keyed state as rows.

    Shows the state of a STREAM of a PIPELINE file or a STORE; without a STREAM, lists those with
    state. Columns are called by what they hold, as in the SELECT.

    By default at the newest checkpoint; --at chooses another one or any epoch that the log of the
    home still reaches ("head" is the last acknowledged one). Claims and changes nothing.
    """
    _check(
        (screen.as_json, as_csv, parquet is not None, count and not screen.as_json),
        alone=operator is None
        and bool(keys or as_csv or parquet or where is not None or limit is not None),
        twice=(at is not None and as_of_ms is not None) or (where is not None and bool(keys)),
    )
    with opened(target) as archive:
        view = archive.view(at if as_of_ms is None else as_of(archive.checkpointer, as_of_ms))
        place = shapes.place(archive.checkpointer) | {"at": view_shape(view)}
        if operator is None:
            _list(screen, view, place, count=count)
            return
        asked = _Asked(screen, view, operator, where or keys, limit)
        if count:
            _count(screen, asked, place)
        elif as_csv:
            print_csv(asked.schema, asked.batches())
        elif parquet is not None:
            _write(screen, asked, parquet)
        elif screen.as_json:
            head = {"operator": info_shape(asked.info, None)}
            print_json(place | head, json_rows(asked.batches()))
        else:
            _print(screen, asked)


def _check(forms: tuple[bool, ...], *, alone: bool, twice: bool) -> None:
    if sum(forms) > 1:
        raise click.UsageError("--json, --csv, --parquet and --count exclude each other")
    if alone:
        raise click.UsageError("--where, --key, --limit, --csv and --parquet need a STREAM")
    if twice:
        raise click.UsageError("--at excludes --as-of, and --where excludes --key")


class _Asked:
    """The rows that a command line asks for; the files they are in are fetched."""

    def __init__(
        self,
        screen: Screen,
        view: View,
        operator: str,
        which: Mapping[str, str | None] | str,
        limit: int | None,
    ) -> None:
        self.view = view
        self.limit = limit
        self.info: OperatorInfo = view.info(operator)
        with screen.progress("fetching") as report:
            lists = view.lists(operator, report)
        self._where: Where = None
        if lists is None:  # nothing was ever written: names without types
            columns = (*self.info.key, *self.info.value)
            self.schema = pa.schema([(column.name, pa.null()) for column in columns])
        else:
            self.schema = lists.columns.row
            if isinstance(which, str):
                self._where = parse_condition(lists.columns.row, which)
            elif which:
                self._where = parse_key(lists.columns, which)

    def all(self, report: Report = silent) -> Iterator[pa.RecordBatch]:
        return self.view.scan(self.info.name, self._where, report=report)

    def batches(self, report: Report = silent) -> Iterator[pa.RecordBatch]:
        return limited(self.all(report), self.limit)


def _count(screen: Screen, asked: _Asked, place: shapes.Shape) -> None:
    with screen.progress("counting") as report:
        keys = sum(batch.num_rows for batch in asked.all(report))
    if screen.as_json:
        screen.json(place | {"operator": info_shape(asked.info, keys)})
    else:
        screen.line(f"{keys} {'key' if keys == 1 else 'keys'}")


def _write(screen: Screen, asked: _Asked, path: Path) -> None:
    with screen.progress("writing") as report:
        rows = write_parquet(path, asked.schema, asked.batches(report))
    screen.line(f"wrote {counted(rows, 'row')} to {path}")


def _print(screen: Screen, asked: _Asked) -> None:
    limit = TABLE_ROWS if asked.limit is None else asked.limit
    with screen.progress("reading") as report:
        rows, more = first_rows(asked.all(report), limit)
    screen.line(view_text(asked.view))
    print_table(screen, asked.schema, rows, more)


def _list(screen: Screen, view: View, place: shapes.Shape, *, count: bool) -> None:
    infos = [view.info(name) for name in view.operators]
    with screen.progress("counting") as report:
        keys = {name: view.count(name, report=report) if count else None for name in view.operators}
    if screen.as_json:
        operators = [info_shape(info, keys[info.name]) for info in infos]
        screen.json(place | {"operators": operators, "not_keyed": list(view.not_keyed)})
        return
    screen.line(view_text(view))
    if infos:
        screen.table(COLUMNS, [_row(info, keys[info.name]) for info in infos])
    for name in view.not_keyed:
        screen.line(f"{name}: not keyed state")
    if not infos and not view.not_keyed:
        screen.line("no operators")


def _row(info: OperatorInfo, keys: int | None) -> tuple[str, ...]:
    return (
        info.name,
        str(info.partitions),
        columns_text(info.key),
        columns_text(info.value),
        str(info.rows_stored),
        "-" if keys is None else str(keys),
        str(info.runs),
        size(info.size),
    )
