"""The pipeline of the remote cluster: objects in, objects out; input that comes bit by bit."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from obstore.store import from_url

from tests.servers.s3 import S3Server
from tests.spark.kills import PIPELINE, Project
from tests.spark.oracle import DELAY_S, Rows, in_the_end, plain

READER = Path(__file__).parents[2] / "docs" / "read_parquet_sink.py"
STREAMS = ("bars", "best", "answered")  # closed windows, an aggregate that is updated, a join
OPTIONS = ("--max-files", "1", "--checkpoint-epochs", "3", "--partitions", "2", "--interval", "0")
PREFIX = "kills"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class RemoteProject:
    """Some streams of the pipeline of the kill tests, with everything in a bucket."""

    folder: Path  # the same input as files, for those who say what has to come out
    server: S3Server
    files: int
    fed: int = field(default=0, init=False)
    _store: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        Project(self.folder, self.files).write()
        self._store = from_url(self.server.url(PREFIX), **self.server.options())

    @property
    def text(self) -> str:
        """The statements of our streams: those of others would need a second source."""
        head, *others = PIPELINE.split("CREATE STREAM ")
        streams = [each.partition("CREATE SINK")[0] for each in others]
        mine = [f"CREATE STREAM {each}" for each in streams if each.split()[0] in STREAMS]
        source = head.partition("CREATE SOURCE trades")[0].replace(
            "'orders'", f"'{self._url}orders'"
        )
        sinks = (
            f"CREATE SINK {name}_out FROM {name} USING parquet"
            f" OPTIONS (path '{self._url}out/{name}');\n"
            for name in STREAMS
        )
        return "".join((source, *mine, *sinks))

    @property
    def _url(self) -> str:
        return self.server.url(f"{PREFIX}/")

    @property
    def home(self) -> str:
        return f"{self._url}home"

    @property
    def store(self) -> str:
        return f"{self._url}store"

    def feed(self, files: int) -> int:
        """Put so many more files; the watermark of the epoch that has read them all."""
        latest = 0
        for number in range(self.fed, self.fed + files):
            name = f"orders/{number:05d}.json"
            data = (self.folder / name).read_bytes()
            self._store.put(name, data)
            times = [json.loads(line)["ts"] for line in data.splitlines()]
            latest = max(latest, *(_micros(each) for each in times))
        self.fed += files
        return latest - DELAY_S * 1_000_000

    def truth(self, spark: Any) -> dict[str, Rows]:
        """By plain Spark and by DuckDB over all files, which have to agree."""
        batch = Project(self.folder, self.files).truth(spark).batch
        return {name: batch[name] for name in STREAMS}

    def published(self) -> dict[str, Rows]:
        """Everything, as readers see it; of the updated aggregate the newest row of each key."""
        return {name: in_the_end(name, dict(enumerate(self._epochs(name)))) for name in STREAMS}

    def _epochs(self, name: str) -> list[Rows]:
        """Oldest first, by the reader that the documentation shows."""
        store = from_url(f"{self._url}out/{name}", **self.server.options())
        epochs: dict[str, Rows] = {}
        for file in runpy.run_path(str(READER))["files"](store):
            table = pq.read_table(BytesIO(bytes(store.get(file["path"]).bytes())))
            epoch = epochs.setdefault(str(Path(file["path"]).parent), Counter())
            epoch.update(plain(row) for row in table.to_pylist())
        return list(epochs.values())


def _micros(time: str) -> int:
    return (datetime.fromisoformat(time) - EPOCH) // timedelta(microseconds=1)
