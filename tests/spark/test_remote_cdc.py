"""Tables of a database with a home in an object store, and executors without the driver's disk.

    LAMINA_KILLS=10 LAMINA_SEED=1 .venv/bin/python -m pytest -s tests/spark/test_remote_cdc.py

The driver looks ahead: it reads the changes of the next epoch while the COMMIT of this one is on
its way. It is killed, its machine is lost, and another one takes over: every version of the sinks
is a state that the table was committed in, and the last one is the table.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from tests.servers import PostgresServer
from tests.servers.postgres import ADMIN
from tests.servers.s3 import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server
from tests.spark.cdc_writer import SELECT, Writer
from tests.spark.cluster import Cluster, app_settings, can_hide_folders, running_cluster, write_conf
from tests.spark.test_cdc_kills import TOTALS, check_versions, states_of_versions
from tests.spark.victims import Nursery, Process

pytestmark = pytest.mark.server

KILLS = int(os.environ.get("LAMINA_KILLS", "1"))
SEED = int(os.environ.get("LAMINA_SEED") or secrets.randbelow(1_000_000))
COLUMNS = "(id BIGINT, name STRING, amount DECIMAL(12, 2), big STRING)"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Cluster]:
    """Its worker sees nothing of the folders in which drivers run."""
    if not can_hide_folders(tmp_path):
        pytest.skip("only root with mount namespaces can give a worker folders of its own")
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        started.add_workers("apart", hidden=tmp_path)
        yield started


@dataclass
class Rig:
    """A pipeline over two tables; all of it that counts is below one address."""

    folder: Path
    url: str
    sql: str
    environment: dict[str, str]
    aws: dict[str, str]
    processes: Nursery
    master: str
    machines: int = 0

    def start(self, *options: str) -> Process:
        """On a machine that has nothing but the pipeline's file."""
        self.machines += 1
        self.machine.mkdir()
        (self.machine / "cdc.sql").write_text(self.sql)
        settings = {f"spark.executorEnv.{name}": value for name, value in self.aws.items()}
        conf = write_conf(self.machine / "conf", app_settings(cores=1) | settings)
        more = ("--interval", "0", "--checkpoint-epochs", "3", "--partitions", "2")
        place = ("--home", f"{self.url}/home", "--master", self.master)
        return self.processes.lamina(
            self.machine / "cdc.sql",
            *(*place, *more, *options),
            environment=self.environment | self.aws | {"SPARK_CONF_DIR": str(conf)},
        )

    def lose(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        process.wait()
        shutil.rmtree(self.machine)

    @property
    def machine(self) -> Path:
        return self.folder / f"machine{self.machines}"

    def versions(self, table: str) -> list[int]:
        return states_of_versions(f"{self.url}/{table}", self.aws)


@pytest.fixture
def rig(
    tmp_path: Path,
    cluster: Cluster,
    seaweedfs_server: S3Server,
    postgres_server: PostgresServer,
    processes: Nursery,
) -> Rig:
    aws = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{seaweedfs_server.port}",
        "AWS_ALLOW_HTTP": "true",
    }
    url = f"s3://{BUCKET}/cdc-{tmp_path.name}"
    given = {name: v for name, v in cluster.environment.items() if not name.startswith("LAMINA_")}
    sql = pipeline(postgres_server.port, url)
    return Rig(tmp_path, url, sql, given, aws, processes, cluster.url)


def pipeline(port: int, url: str) -> str:
    login = f"host '127.0.0.1', port '{port}', database 'postgres', user '{ADMIN}'"
    return f"""
CREATE SOURCE t {COLUMNS} USING postgres_cdc OPTIONS
  ({login}, table 'remote_t', publication 'remote_p', keys 'id', remember_rows 'true');
CREATE SOURCE u {COLUMNS} USING postgres_cdc OPTIONS
  ({login}, table 'remote_u', publication 'remote_q', keys 'id');
CREATE STREAM all_of_t AS {SELECT} t;
CREATE STREAM all_of_u AS {SELECT} u;
CREATE STREAM totals AS {TOTALS.format(table="t")} EMIT CHANGES;
CREATE SINK t_out FROM all_of_t USING delta OPTIONS (path '{url}/t', keys 'id');
CREATE SINK u_out FROM all_of_u USING delta OPTIONS (path '{url}/u', keys 'id');
CREATE SINK totals_out FROM totals USING postgres
  OPTIONS ({login}, table 'remote_totals', keys 'part');
"""


def test_a_driver_that_looks_ahead_is_lost_and_every_version_is_a_state_of_the_table(
    rig: Rig, postgres_server: PostgresServer
) -> None:
    print(f"LAMINA_SEED={SEED} LAMINA_KILLS={KILLS}")
    draw = random.Random(SEED)
    remembered = Writer(postgres_server, "remote_t", "remote_p", SEED)
    other = Writer(postgres_server, "remote_u", "remote_q", SEED + 1, remembered=False)
    for number in range(KILLS):
        process = rig.start("--max-rows", "200", *(("--take-over",) if number else ()))
        for _ in range(4):  # so that a checkpoint was made, and the slots were advanced
            event = process.until("epoch", "error", "ended")
            assert event["event"] == "epoch", f"{event}\n{process.said()}"
        time.sleep(draw.random())
        rig.lose(process)
    remembered.stop()
    other.stop()
    process = rig.start("--available-now", "--take-over")
    ended = process.until("ended", "error")
    assert ended["event"] == "ended", f"{ended}\n{process.said()}"
    assert process.wait() == 0, process.said()
    check_versions(rig.versions("t"), remembered)
    check_versions(rig.versions("u"), other)
    totals = "SELECT part, n, total, last FROM remote_totals"
    batch = TOTALS.format(table="remote_t")
    assert set(postgres_server.execute(totals)) == set(postgres_server.execute(batch))
