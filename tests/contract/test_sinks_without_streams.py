"""A sink that is opened without its stream: it is claimed and moved, and gets no rows.

So a pipeline is rewound without Spark, which alone knows the columns of streams.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.engine.ports import Sink
from lamina.errors import NotFound, Refused
from tests.contract.sinks import PIPELINE, ROWS, SHOWN, Output, World
from tests.contract.worlds import WORLDS, params

ASK_FOR_COLUMNS = {"delta", "iceberg", "postgres", "kafka"}
NAMES = [
    "parquet on a disk",
    "parquet in a store",
    "console",
    "function",
    "delta",
    "iceberg",
    "postgres",
    "kafka",
]


def without_stream(world: World) -> Sink:
    from tests.contract.delta_world import DeltaWorld  # noqa: PLC0415  extras
    from tests.contract.iceberg_worlds import IcebergWorld  # noqa: PLC0415
    from tests.contract.kafka_world import KafkaWorld  # noqa: PLC0415
    from tests.contract.postgres_world import PostgresWorld  # noqa: PLC0415

    if isinstance(world, DeltaWorld | IcebergWorld | PostgresWorld | KafkaWorld):
        return world.open_without_stream()
    return world.open()


def test_every_kind_is_asked() -> None:
    assert {WORLDS[name].kind for name in NAMES} == {row.kind for row in WORLDS.values()} - {None}


@pytest.mark.parametrize("name", params(NAMES))
def test_it_is_claimed_and_moved_and_gets_no_rows(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    world = WORLDS[name].make(request, tmp_path)()
    output, sink = Output(tmp_path / "home"), world.open()
    sink.fence(1, PIPELINE)
    sink.publish(output.publication(1, ROWS[1]))
    sink.close()
    blind = without_stream(world)
    assert blind.fence(2, PIPELINE).point == output.publication(1).point
    if name in ASK_FOR_COLUMNS:
        with pytest.raises(Refused, match="columns of its stream"):
            blind.publish(output.publication(3, ROWS[3], generation=2))
        assert world.shown() == {1: SHOWN[1]}
    for _ in range(2):
        blind.publish(output.publication(4, generation=2))
    assert blind.position().point == output.publication(4).point
    blind.close()
    again = world.open()
    assert again.fence(3, PIPELINE).point == output.publication(4).point
    again.publish(output.publication(6, [[8]], generation=3))
    assert world.shown() == {1: SHOWN[1], 6: [8]}
    again.close()


@pytest.mark.parametrize("name", params(["delta", "iceberg"]))
def test_a_table_that_is_not_there_is_not_made(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    world = WORLDS[name].make(request, tmp_path)()
    with pytest.raises((Refused, NotFound)):
        without_stream(world).fence(1, PIPELINE)
    assert world.shown() == {}
