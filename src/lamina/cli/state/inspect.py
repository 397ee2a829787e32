"""`lamina inspect`: the keyed state of an operator, at any checkpoint or epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from lamina.inspect.export import limited, write_parquet
from lamina.inspect.where import Where

COLUMNS = ("OPERATOR", ">P", "KEY", "VALUE", ">ROWS STORED", ">KEYS", ">RUNS", ">SIZE")


@click.command("inspect")
@state_target
@click.argument("operator", metavar="[OPERATOR]", required=False)
@click.option(
    "--at", metavar=REFERENCE, help="Which state to show; default: the newest checkpoint."
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
def inspect_command(
    *,
    target: StateTarget,
    operator: str | None,
    at: str | None,
    keys: Mapping[str, str | None],
    limit: int | None,
    count: bool,
    as_csv: bool,
    parquet: Path | None,
    screen: Screen,
) -> None:
    """Show keyed state as rows.

    Shows the state of an OPERATOR in STORE; without one, lists the operators.

    By default at the newest checkpoint; --at chooses another one or, with --home, any epoch that
    the log still reaches ("head" is the last acknowledged one). Claims and changes nothing.
    """
    _check(
        (screen.as_json, as_csv, parquet is not None, count and not screen.as_json),
        alone=operator is None and bool(keys or as_csv or parquet or limit is not None),
    )
    with opened(target) as archive:
        view = archive.view(at)
        place = shapes.place(archive.checkpointer) | {"at": view_shape(view)}
        if operator is None:
            _list(screen, view, place, count=count)
            return
        asked = _Asked(screen, view, operator, keys, limit)
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


def _check(forms: tuple[bool, ...], *, alone: bool) -> None:
    if sum(forms) > 1:
        raise click.UsageError("--json, --csv, --parquet and --count exclude each other")
    if alone:
        raise click.UsageError("--key, --limit, --csv and --parquet need an OPERATOR")


class _Asked:
    """The rows that a command line asks for; the files they are in are fetched."""

    def __init__(
        self,
        screen: Screen,
        view: View,
        operator: str,
        keys: Mapping[str, str | None],
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
            self._where = parse_key(lists.columns, keys) if keys else None

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
