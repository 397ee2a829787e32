"""A process that publishes epochs to Kafka until it is killed.

python -m tests.contract.kafka_child SERVERS TOPIC HOME GENERATION EPOCHS
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from lamina.engine.ports import Output
from tests.support.kafka import PIPELINE, kafka_sink, publication

ROWS = 2_000


def rows_of(epoch: int) -> pa.Table:
    return pa.table({"v": pa.array(range(epoch * ROWS, (epoch + 1) * ROWS), pa.int64())})


def main(servers: str, topic: str, home: str, generation: int, epochs: int) -> None:
    output = Output(rows_of(0).schema)
    sink = kafka_sink(servers, topic, output)
    at = sink.fence(generation, PIPELINE).point
    print("claimed", flush=True)
    for epoch in range(1 + (at.epoch if at else 0), epochs + 1):
        sink.publish(publication(Path(home), rows_of(epoch), epoch, generation=generation))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))  # type: ignore[arg-type]
