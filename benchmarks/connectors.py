"""What a connector costs beside the bare client that does the same work, on real servers.

python benchmarks/connectors.py            the numbers of docs/benchmarks.md
python benchmarks/connectors.py --quick    fewer rows and rounds
python benchmarks/connectors.py --json     the last line of stdout is one JSON object

It starts Kafka (`make kafka`) and PostgreSQL on loopback, as the tests do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the servers of the tests

from connector_kafka import epochs_numbers, source_numbers
from connector_sinks import sink_numbers
from engine_session import say, session
from report import Number, run

from tests.servers import kafka, kafka_missing, postgres, postgres_missing
from tests.servers.kafka import SPARK_JARS


@dataclass(frozen=True, slots=True)
class Scale:
    rows: int  # of an epoch of a sink
    rounds: int
    source_rows: int
    source_rounds: int
    small_epochs: int
    warm: int  # before those


SCALES = {
    "full": Scale(200_000, 9, 1_000_000, 5, 120, 12),
    "quick": Scale(100_000, 5, 300_000, 3, 40, 8),
    "tiny": Scale(2_000, 1, 2_000, 1, 2, 1),
}


def main() -> None:
    run(__doc__ or "", SCALES, measured)


def measured(scale: Scale, folder: Path) -> Iterator[Number]:
    if reason := kafka_missing() or postgres_missing():
        raise SystemExit(reason)
    broker_folder = folder / "kafka"
    broker_folder.mkdir()
    with kafka(broker_folder) as broker, postgres() as database:
        say("sinks")
        yield from sink_numbers(folder, broker, database, rows=scale.rows, rounds=scale.rounds)
        say("Spark")
        with session(folder, "2g", SPARK_JARS) as spark:
            yield from source_numbers(
                spark, folder, broker, rows=scale.source_rows, rounds=scale.source_rounds
            )
            yield from epochs_numbers(
                spark, folder, broker, epochs=scale.small_epochs, warm=scale.warm
            )


if __name__ == "__main__":
    main()
