"""The jars of Spark's own connectors, which pip's pyspark does not bring: Kafka, Avro.

A pipeline that needs them gets them by itself, in the version of the installed Spark: Spark fetches
them from Maven Central (`spark.jars.packages`), once. Without a network there is another way: a
folder with the jars (`--jars FOLDER`, or LAMINA_JARS).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lamina.errors import UsageError

FOLDER = "LAMINA_JARS"
PACKAGES, JARS = "spark.jars.packages", "spark.jars"
SCALA = "2.13"  # of every Spark 4
CLASSES = {
    "spark-sql-kafka-0-10": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "spark-avro": "org.apache.spark.sql.avro.AvroFileFormat",
}
"""All that a connector of ours may need, each with a class that is in it."""


@dataclass(frozen=True, slots=True)
class JarsPlan:
    """How Spark gets the jars that a pipeline needs."""

    settings: Mapping[str, str]
    words: str  # for people


def coordinates(artifacts: Iterable[str]) -> list[str]:
    """As `spark.jars.packages` has them, in the version of the installed Spark."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        message = "pyspark is not installed, and the jars are of its version"
        raise UsageError(message, advice="pip install 'lamina[spark]'") from None
    return [f"org.apache.spark:{each}_{SCALA}:{version}" for each in artifacts]


def plan_jars(
    artifacts: Iterable[str], folder: str = "", conf: Mapping[str, str] | None = None
) -> JarsPlan:
    """Settings for a Spark that is to be started; *conf* is the user's, and goes before.

    UsageError if the folder will not do.
    """
    conf, folder = conf or {}, folder or os.environ.get(FOLDER, "")
    missing = [each for each in artifacts if not _is_named(each, conf)]
    if not missing:
        return JarsPlan({}, "nothing to fetch")
    if not folder:
        wanted = coordinates(missing)
        listed = ",".join([*filter(None, [conf.get(PACKAGES, "")]), *wanted])
        return JarsPlan({PACKAGES: listed}, f"Spark fetches {', '.join(wanted)}")
    found = _jars_in(Path(folder))
    for each in missing:
        if not any(jar.name.startswith(f"{each}_") for jar in found):
            raise UsageError(
                f"the folder has no {each}_{SCALA}-*.jar",
                where=folder,
                advice="`lamina jars` lists what it needs, and what those depend on",
            )
    listed = ",".join([*filter(None, [conf.get(JARS, "")]), *map(str, found)])
    return JarsPlan({JARS: listed}, f"{len(found)} jars of {folder}")


def _is_named(artifact: str, conf: Mapping[str, str]) -> bool:
    """Whether the user brings it: there must not be two of it."""
    named = f"{conf.get(PACKAGES, '')},{conf.get(JARS, '')}"
    return f"{artifact}_" in named


def _jars_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError("there is no such folder of jars", where=str(folder))
    return sorted(folder.absolute().glob("*.jar"))


def not_fetched(artifacts: Iterable[str]) -> UsageError:
    """For a Spark that did not start when it was to fetch jars."""
    return UsageError(
        "Spark did not start: it could not fetch the jars of a connector; its own messages are "
        "above",
        where=", ".join(coordinates(artifacts)),
        advice="With a network they come from Maven Central. Without one: `lamina jars` says how "
        f"to get them; then give the folder as --jars FOLDER, or as {FOLDER}",
    )
