"""Numbers with their targets: a table for people, one line of JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Number:
    """One number with its target; what has no target is only told."""

    key: str
    value: float
    details: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    @property
    def verdict(self) -> str:
        if self.at_least is not None:
            return "ok" if self.value >= self.at_least else "below"
        if self.at_most is not None:
            return "ok" if self.value <= self.at_most else "above"
        return ""


def run(doc: str, scales: Mapping[str, S], measured: Callable[[S, Path], Iterator[Number]]) -> None:
    """Measure at the scale that the command line names; print as numbers come."""
    options = parse(None, doc, scales)
    start = time.perf_counter()
    numbers = []
    with tempfile.TemporaryDirectory(prefix="lamina-bench-", dir=options.folder) as folder:
        facts = _machine(Path(folder))
        print(_row("what", "number", "target", "", "details"))
        for number in measured(scales[options.scale], Path(folder)):
            numbers.append(number)
            value = f"{number.value:.2f}"
            print(
                _row(number.key, value, number.target, number.verdict, number.details), flush=True
            )
    facts["seconds"] = round(time.perf_counter() - start, 1)
    print("\n" + "\n".join(f"{name}: {value}" for name, value in facts.items()))
    values = {number.key: round(number.value, 4) for number in numbers}
    if options.json:
        print(json.dumps(values | {"scale": options.scale} | facts))
    if options.save is not None:
        _save(options.save, values)


def _save(path: Path, values: Mapping[str, float]) -> None:
    """Keep the newest number of every kind, for the pictures of the documentation."""
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | dict(values), indent=1, sort_keys=True) + "\n")


def _row(*columns: str) -> str:
    widths = (28, 8, 8, 6)
    fixed = (text.ljust(width) for text, width in zip(columns, widths, strict=False))
    return " ".join((*fixed, columns[-1])).rstrip()


def _machine(folder: Path) -> dict[str, str | int | float]:
    file_system = subprocess.run(
        ["stat", "-f", "-c", "%T", str(folder)], stdout=subprocess.PIPE, check=True, text=True
    )
    return {
        "cores": os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "system": platform.platform(),
        "file_system": file_system.stdout.strip(),
    }


def parse(arguments: Sequence[str] | None, doc: str, scales: Mapping[str, S]) -> argparse.Namespace:
    """The command line of every benchmark; without arguments everything is measured."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    parser.add_argument(
        "--quick", dest="scale", action="store_const", const="quick", help="smaller sizes"
    )
    parser.add_argument("--scale", choices=scales, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--save", type=Path, help="add the numbers to this JSON file")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary one by default")
    parser.set_defaults(scale="full")
    return parser.parse_args(arguments)
