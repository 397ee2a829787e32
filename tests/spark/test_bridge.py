"""`lamina.spark.sink`: a query of Structured Streaming publishes each batch exactly once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from lamina.errors import BadPipeline, Diverged, Fenced, LaminaError, Refused, UsageError
from lamina.running.control import read_status
from lamina.spark import BatchSink, sink
from lamina.spark.bridge import QUERY_ID
from lamina.testing.faulty import Killed
from tests.servers import PostgresServer
from tests.servers.postgres import ADMIN

POINTS = ("before rows", "after rows", "before COMMIT", "after COMMIT", "before publish")
QUERY = "6f9a1cfd-453a-4636-88ca-346a8603c8f5"


class World:
    """A sink in a folder, and batches as a query would give them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.open = spark, folder, list[BatchSink]()
        self.query = QUERY

    def sink(self, **more: Any) -> BatchSink:
        given = {"name": "out", "home": self.folder / "home"} | more
        made = sink("parquet", {"path": str(self.folder / "out")}, **given)
        self.open.append(made)
        return made

    def give(self, to: BatchSink, number: int, rows: int = 5, add: int = 0, drop: str = "") -> None:
        """Batch *number*; with *add* it has other rows."""
        context = self.spark.sparkContext
        context.setLocalProperty(QUERY_ID, self.query)
        numbers = self.spark.range(number * 100, number * 100 + rows)
        frame = numbers.selectExpr(
            "concat('k', id % 3) AS k",
            f"id + {add} AS v",
            "timestamp_seconds(id) AS at",
            "map('a', CAST(id AS INT)) AS tags",
        )
        try:
            to(frame.drop(drop), number)
        finally:
            context.setLocalProperty(QUERY_ID, None)

    def published(self) -> Counter[int]:
        files = sorted((self.folder / "out").glob("epoch-*/*.parquet"))
        values = (pyarrow.dataset.dataset(f).to_table().column("v").to_pylist() for f in files)
        return Counter(value for each in values for value in each)


def rows_of(*batches: int) -> Counter[int]:
    return Counter(number * 100 + at for number in batches for at in range(5))


@pytest.fixture
def world(spark: Any, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path)
    yield made
    for each in made.open:
        each.close()


@pytest.mark.parametrize("point", POINTS)
def test_a_batch_that_was_killed_is_published_once(world: World, point: str) -> None:
    armed = [False]

    def fail(at: str) -> None:
        if armed[0] and at == point:
            raise Killed(at)

    dying = world.sink(fail_point=fail)
    world.give(dying, 0)
    armed[0] = True
    with pytest.raises(Killed):
        world.give(dying, 1)
    again = world.sink()
    world.give(again, 1)  # as Spark does: it has no commit of its own
    world.give(again, 1)
    assert world.published() == rows_of(0, 1)
    status = read_status(world.folder / "home")
    assert status is not None
    assert (status.phase, status.epoch, status.sinks) == ("running", 2, {"out": 2})
    again.close()
    world.give(again, 2)  # the same object, opened again
    assert world.published() == rows_of(0, 1, 2)


def test_batches_that_do_not_continue_what_the_sink_has_are_refused(world: World) -> None:
    to = world.sink()
    world.give(to, 3)  # a query that has run before
    world.give(to, 4)
    for number, error, said in (
        (6, Refused, "those between were never given"),
        (3, Refused, "comes again, and the sink has batch 4"),
    ):
        with pytest.raises(error, match=said):
            world.give(to, number)
    with pytest.raises(Diverged, match="batch 4 comes again with other rows"):
        world.give(to, 4, add=1)
    with pytest.raises(Diverged, match="6 rows, and it was published with 5"):
        world.give(to, 4, rows=6)
    world.query = "another"
    for number in (0, 4, 5):
        with pytest.raises(Refused, match="a new checkpoint location"):
            world.give(to, number)
    assert world.published() == rows_of(3, 4)
    to.close()
    follower = world.sink(query="another")
    world.give(follower, 0)
    world.give(follower, 0)
    world.give(follower, 1)
    assert world.published() == rows_of(3, 4, 0, 1)


def test_one_sink_has_one_process_and_one_home(world: World) -> None:
    first = world.sink()
    world.give(first, 0)
    with pytest.raises(Fenced):
        world.give(world.sink(), 1)
    with pytest.raises(LaminaError, match="pipeline"):
        world.give(world.sink(home=world.folder / "other"), 0)
    world.give(first, 1)
    assert world.published() == rows_of(0, 1)


def test_a_query_is_the_same_as_a_batch_after_every_replay(world: World) -> None:
    """A real query, whose commits are lost, and then its whole checkpoint."""
    source, checkpoint = world.folder / "in", world.folder / "checkpoint"
    source.mkdir()
    for number in range(2):
        lines = [json.dumps({"k": f"k{at % 2}", "v": 100 * number + at}) for at in range(5)]
        (source / f"{number}.json").write_text("\n".join(lines))
    to = world.sink()

    def run() -> list[int]:
        rows = world.spark.readStream.schema("k STRING, v BIGINT").option("maxFilesPerTrigger", 1)
        writer = rows.json(str(source)).writeStream.foreachBatch(to).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        return [each["batchId"] for each in query.recentProgress]

    assert run() == [0, 1]
    shutil.rmtree(checkpoint / "commits")
    assert run() == [1]
    assert world.published() == rows_of(0, 1)
    shutil.rmtree(checkpoint)
    with pytest.raises(Exception, match="a new checkpoint location"):
        run()
    assert world.published() == rows_of(0, 1)


@pytest.mark.server
def test_rows_reach_postgres_once(world: World, postgres_server: PostgresServer) -> None:
    login = {"port": postgres_server.port, "database": "postgres", "user": ADMIN}
    schema = postgres_server.new_schema()
    options = {"table": "bridged", "schema": schema, **login}
    killed = list[str]()

    def fail(at: str) -> None:
        if at == "before publish" and not killed:
            killed.append(at)
            raise Killed(at)

    to = sink("postgres", options, name="db", home=world.folder / "home", fail_point=fail)
    world.open.append(to)
    with pytest.raises(Killed):
        world.give(to, 0, drop="tags")  # PostgreSQL has no maps
    for number in (0, 1, 1):
        world.give(to, number, drop="tags")
    with postgres_server.connect() as connection:
        found = connection.execute(f"SELECT v FROM {schema}.bridged").fetchall()
    assert Counter(v for (v,) in found) == rows_of(0, 1)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: sink("parquet", {"path": "out"}, name="out", home="s3://bucket/home"), UsageError),
        (lambda: sink("parquet", {"path": "out", "pth": "x"}, name="out", home="h"), BadPipeline),
        (lambda: sink("parket", {"path": "out"}, name="out", home="h"), BadPipeline),
    ],
)
def test_what_would_not_work_is_said_before_anything_is_claimed(
    make: Callable[[], BatchSink], error: type[LaminaError], spark: Any, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with pytest.raises(error):
            make()(spark.range(1), 0)
    assert not list(tmp_path.iterdir())
