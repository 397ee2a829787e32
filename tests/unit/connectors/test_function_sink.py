"""A function as a sink: what it is called with, what its errors mean, and how it is found."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest

import lamina
from lamina.connectors.function import FunctionSink
from lamina.connectors.opening import open_sink
from lamina.engine.ports import Change, Sink
from lamina.errors import AccessDenied, BadPipeline, Refused, StoreUnavailable
from lamina.pipeline.model import DeclaredSink, Option
from lamina.workspace.notes import LocalNotes
from tests.contract.sinks import PIPELINE, KeptPosition, Output, nothing
from tests.support.command_line import answer
from tests.support.command_line import lamina as command

SQL = """CREATE SOURCE s (a BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM n AS SELECT a FROM s;
CREATE SINK o FROM n USING function OPTIONS (function '{}');
"""


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "home")


@pytest.fixture(autouse=True)
def _clean_path() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("its_"):
            del sys.modules[name]


def opened(function: object) -> Sink:
    return FunctionSink("out", KeptPosition([], nothing), function, "m:f")  # type: ignore[arg-type]


def test_it_is_called_once_for_each_epoch_with_its_rows_and_its_number(output: Output) -> None:
    calls: list[tuple[pa.Table, int]] = []
    sink = opened(lambda table, epoch: calls.append((table, epoch)))
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, [[1, 2], [3]]))
    sink.publish(output.publication(2))
    sink.publish(output.publication(3, [[], []]))
    sink.publish(output.publication(4, [[4]]))
    assert [(table["v"].to_pylist(), epoch) for table, epoch in calls] == [([1, 2, 3], 1), ([4], 4)]
    assert calls[0][0].schema == pa.schema({"v": pa.int64()})
    assert sink.position().point == output.publication(4).point
    assert sink.takes == set(Change)


@pytest.mark.parametrize("kind", [StoreUnavailable, AccessDenied])
def test_an_error_of_a_store_is_tried_again(kind: type[Exception], output: Output) -> None:
    troubles: list[Exception] = [kind("the table is locked")]

    def function(table: pa.Table, epoch: int) -> None:
        if troubles:
            raise troubles.pop()

    sink = opened(function)
    sink.fence(1, PIPELINE)
    with pytest.raises(kind, match="the table is locked"):
        sink.publish(output.publication(1, [[1]]))
    assert sink.position().point is None
    sink.publish(output.publication(1, [[1]]))
    assert sink.position().point == output.publication(1).point


@pytest.mark.parametrize(
    "error", [ValueError("no such thing"), lamina.LaminaError("what"), OSError]
)
def test_any_other_error_stops_with_its_text_and_its_line(error: Exception, output: Output) -> None:
    def function(table: pa.Table, epoch: int) -> None:
        raise error

    sink = opened(function)
    sink.fence(1, PIPELINE)
    with pytest.raises(Refused) as raised:
        sink.publish(output.publication(7, [[1]]))
    name = error.__name__ if isinstance(error, type) else type(error).__name__
    assert f"the sink 'out' failed in epoch 7: {name}" in raised.value.message
    line = function.__code__.co_firstlineno + 1
    assert raised.value.where == f"m:f, {__file__}:{line}"
    assert "StoreUnavailable" in raised.value.advice
    assert sink.position().point is None


def test_a_person_who_interrupts_is_obeyed(output: Output) -> None:
    def function(table: pa.Table, epoch: int) -> None:
        raise KeyboardInterrupt

    sink = opened(function)
    sink.fence(1, PIPELINE)
    with pytest.raises(KeyboardInterrupt):
        sink.publish(output.publication(1, [[1]]))


def declared(function: str, tmp_path: Path) -> Sink:
    sink = DeclaredSink("o", "n", "function", {"function": Option.plain(function)})
    file = str(tmp_path / "p.sql")
    return open_sink(sink, tmp_path, notes=LocalNotes(tmp_path / "home"), file=file, out=StringIO())


def test_a_module_beside_the_pipeline_is_found(tmp_path: Path, output: Output) -> None:
    (tmp_path / "its_sinks.py").write_text(
        "seen = []\nclass Keeper:\n"
        "    @staticmethod\n    def keep(table, epoch): seen.append((table.num_rows, epoch))\n"
    )
    sink = declared("its_sinks:Keeper.keep", tmp_path)
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(5, [[1, 2]]))
    assert sys.modules["its_sinks"].seen == [(2, 5)]
    again = declared("its_sinks:Keeper.keep", tmp_path)
    assert again.position() == sink.position(), "it is in the home"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("its_nowhere:f", "cannot be imported: ModuleNotFoundError"),
        ("its_broken:f", "cannot be imported: ZeroDivisionError"),
        ("its_good:missing", "which is not there"),
        ("its_good:number", "which is a int, no function"),
        ("its_good", "has the function 'its_good'"),
        (":f", "has the function ':f'"),
    ],
)
def test_check_says_before_spark_starts_what_cannot_be_called(
    function: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "its_broken.py").write_text("1 / 0\n")
    (tmp_path / "its_good.py").write_text("number = 1\n")
    file = tmp_path / "p.sql"
    file.write_text(SQL.format(function))
    said = command("check", file, "--no-spark")
    assert said.exit_code == 2
    assert message in said.stderr
    assert f"{file}:3:13" in said.stderr


def test_check_says_that_it_is_at_least_once(tmp_path: Path) -> None:
    (tmp_path / "its_plain.py").write_text("def f(table, epoch): ...\n")
    (tmp_path / "p.sql").write_text(SQL.format("its_plain:f"))
    plan = answer(command("check", tmp_path / "p.sql", "--no-spark", "--json"))
    assert plan["sinks"][0]["delivery"].startswith("at least once")


def test_a_module_of_that_name_elsewhere_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("1 / 0\n")
    with pytest.raises(BadPipeline, match=r"'json:f', which is not there"):
        declared("json:f", tmp_path)


def test_python_gives_the_function_itself(tmp_path: Path) -> None:
    seen: list[int] = []
    pipeline = (
        lamina.Pipeline()
        .source("s", "a BIGINT", "json", {"path": "in"})
        .stream("n", "SELECT a FROM s")
        .sink("o", "n", "function", {"function": lambda table, epoch: seen.append(epoch)})
        .sink("p", "n", "function", {"function": functools.partial(seen.insert, 0)})
    )
    plan = lamina.check(pipeline, folder=tmp_path, with_spark=False)
    assert "<lambda>" in plan["sinks"][0]["options"]["function"]
    model = pipeline.build()
    made = model.sinks["o"].options["function"].made
    assert made is not None
    made(None, 3)
    assert seen == [3]
    renamed = replace(model.sinks["o"], options={})
    assert renamed != model.sinks["o"]
