"""What `lamina verify-spark` says a restart would do is what Spark itself does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lamina.format.spark_files import hadoop_sidecar
from lamina.inspect.spark_checkpoint import Does, verify_spark
from lamina.store import LocalStore
from tests.golden.spark.make import WORK, turnover, write
from tests.support.spark_checkpoints import CASES, Case, unpack

FILES = 5
ASKED = [  # each costs a start of a query
    "no commit",
    "two commits less",
    "commit without offsets",
    "no offsets before",
    "torn commit",
    "no state",
    "repeats without later state",
    "source log without its last",
    "source log with a gap",
]


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ASKED], ids=lambda case: case.name)
def test_spark_does_what_was_foretold(case: Case, spark: Any, tmp_path: Path) -> None:
    checkpoint, source = tmp_path / "checkpoint", tmp_path / "source"
    case.damage(unpack("hdfs", checkpoint))
    move(checkpoint, source)
    said = verify_spark(LocalStore(checkpoint, create=False)).restart
    batches, failed = restarted(spark, checkpoint, source)
    assert failed == (said.does is Does.STOPS), batches
    if not failed:
        assert batches[0][0] == said.batch
        assert (sum(rows for _, rows in batches) == 0) == (said.does is Does.LOSES)


def move(checkpoint: Path, source: Path) -> None:
    """The log of the source names its files by where they were made."""
    source.mkdir()
    for number in range(FILES + 1):
        write(source / f"part-{number}.json", number)
    for path in list((checkpoint / "sources").glob("0/*")):
        if not path.name.endswith(".crc"):
            text = path.read_text().replace(str(WORK / "hdfs.in"), str(source))
            path.write_text(text)
            (checkpoint / hadoop_sidecar(f"sources/0/{path.name}")).unlink()


def restarted(spark: Any, checkpoint: Path, source: Path) -> tuple[list[tuple[int, int]], bool]:
    """The batches that the query runs, with their rows; and whether it fails."""
    spark.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "3")
    rows = spark.readStream.schema("k STRING, v BIGINT, ts TIMESTAMP").json(str(source))
    writer = turnover(rows).writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception:  # noqa: BLE001  whatever Spark calls it
        return [], True
    finally:
        spark.conf.unset("spark.sql.streaming.fileSource.log.compactInterval")
    return [(each["batchId"], each["numInputRows"]) for each in query.recentProgress], False
