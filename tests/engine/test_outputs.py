"""What a sink is told about its stream, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.connectors.parquet import ParquetSink
from lamina.engine.ports import Change, Output, Sink
from lamina.errors import Refused
from tests.engine.pipelines import PLAN, World, kill
from tests.engine.test_sinks import FlakySink

TOTALS = pa.schema([("key", pa.string()), ("total", pa.int64()), ("rows", pa.int64())])


def world_with(output: Output, root: Path) -> World:
    streams = [replace(s, output=output) if s.name == "totals" else s for s in PLAN.streams]
    return World(root, plan=replace(PLAN, streams=tuple(streams)))


def test_a_publication_carries_schema_keys_and_kind_of_change(tmp_path: Path) -> None:
    output = Output(TOTALS, Change.UPSERT, ("key",))
    world = world_with(output, tmp_path)
    seen: list[Output] = []

    class Noting(FlakySink):
        def publish(self, publication: object) -> None:
            seen.append(publication.output)  # type: ignore[attr-defined]
            super().publish(publication)  # type: ignore[arg-type]

    noting = Noting("totals", world.tables["totals"])
    engine = world.open(sinks={**world.sinks(), "totals": noting})
    engine.step()
    kill(engine)
    assert seen == [output]


def test_a_sink_that_cannot_express_its_stream_is_refused_before_anything_is_claimed(
    tmp_path: Path,
) -> None:
    world = world_with(Output(TOTALS, Change.CHANGES, ("key",)), tmp_path)
    folder = tmp_path / "out"
    sinks: dict[str, Sink] = {**world.sinks(), "totals": ParquetSink("totals", folder)}
    with pytest.raises(Refused, match=r"'totals' cannot take a stream of changes") as raised:
        world.open(sinks=sinks)
    assert "goes by keys" in (raised.value.advice or "")
    assert not folder.exists()
    assert not world.home.exists()
