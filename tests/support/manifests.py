"""What is in deploy/: manifests, and Spark's settings in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
Shape = dict[str, Any]


def manifests(folder: Path = KUBERNETES) -> list[Shape]:
    return [
        document
        for file in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]


def the(kind: str, name: str = "") -> Shape:
    """The one manifest of a kind, or of a kind and a name."""
    [one] = [
        each
        for each in manifests()
        if each["kind"] == kind and (not name or each["metadata"]["name"] == name)
    ]
    return one


def settings() -> dict[str, str]:
    """Those of Spark."""
    text: str = the("ConfigMap")["data"]["spark-defaults.conf"]
    pairs = (line.split(maxsplit=1) for line in text.splitlines())
    return {name: value.strip() for name, value in pairs}


def executor_template() -> Shape:
    found: Shape = yaml.safe_load(the("ConfigMap")["data"]["executor.yaml"])
    return found
