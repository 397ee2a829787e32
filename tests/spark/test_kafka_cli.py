"""`lamina run` of the example that reads Kafka: with jars from a folder, and told why without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lamina.connectors.jars import FOLDER
from lamina.errors import SparkLost, UsageError
from lamina.front.run import run
from tests.servers.kafka import SPARK_JARS
from tests.servers.kafka_topics import Topics
from tests.spark.java import JAVA_OPTIONS
from tests.spark.running import Place
from tests.support.command_line import lamina

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_source" / "pipeline.sql"
LAMINA = Path(sys.executable).parent / "lamina"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(EXAMPLE, tmp_path))


def test_the_example_reads_a_topic_with_jars_from_a_folder(file: Path, topics: Topics) -> None:
    name = topics.new()
    topics.put(name, [{"symbol": "A", "price": 1.5, "volume": volume} for volume in (10, 20)])
    topics.put(name, ["not a trade"])
    environment = {"KAFKA": topics.server.bootstrap, "TOPIC": name, "LAMINA_CACHE": "off"}
    ran = subprocess.run(
        [LAMINA, "run", file, "--drain", "--master", "local[2]", "--jars", SPARK_JARS],
        env={**os.environ, **environment, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    place = Place(file.parent)
    (row,) = place.rows("out/turnover")
    assert (row["symbol"], row["turnover"], row["last_offset"]) == ("A", Decimal("45.00"), 1)
    assert [row["bytes"] for row in place.rows("bad/trades")] == [b"not a trade"]


def test_jars_that_cannot_be_fetched_are_named_with_what_to_do(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any, **settings: Any) -> None:
        assert "spark-sql-kafka-0-10" in settings["settings"]["spark.jars.packages"]
        raise SparkLost("Spark did not start")

    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setattr("lamina.spark.session.start_session", start)
    with pytest.raises(UsageError, match="could not fetch the jars") as told:
        run(file, once=True)
    assert "--jars" in told.value.advice
    assert not list(file.parent.rglob("*.log")), "nothing is claimed"


def test_a_session_without_the_connector_is_refused(spark: Any, file: Path) -> None:
    from lamina.spark.jars import check_classes  # noqa: PLC0415  an extra

    check_classes(spark, ["spark-sql-kafka-0-10", "spark-avro"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lamina.spark.jars.has_class", lambda *_: False)
        with pytest.raises(UsageError, match="does not have the connector"):
            check_classes(spark, ["spark-avro"])


def test_the_jars_of_a_pipeline_are_listed_for_a_cluster(file: Path) -> None:
    listed = lamina("jars", "--pipeline", file).stdout.split()
    assert [each.split(":")[1] for each in listed] == ["spark-sql-kafka-0-10_2.13"]
    assert len(lamina("jars").stdout.split()) == 2


def test_skip_lost_names_a_source_that_can_lose_rows(file: Path) -> None:
    answered = lamina("run", file, "--skip-lost", "turnover")
    assert "no source that can lose rows of this name" in answered.stderr
