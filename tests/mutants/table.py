"""The table of promises, from the .toml files beside this module."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RULES = tuple(f"R{number}" for number in range(1, 15))
GUARANTEES = tuple(f"G{number}" for number in range(1, 11))


@dataclass(frozen=True)
class Mutant:
    """One promise, and the smallest change that breaks it."""

    name: str
    promise: str
    rules: tuple[str, ...]  # of docs/ARCHITECTURE.md (R1 to R14), and the guarantees (G1 to G10)
    file: str
    find: str  # exactly once in the file
    change: str  # what stands there instead; nothing: the text is deleted
    test: str  # what must fail then
    quick: bool = False  # part of the short form, which `make test` runs

    def source(self, root: Path = ROOT) -> str:
        return (root / self.file).read_text()

    def broken(self, root: Path = ROOT) -> str:
        """The file with the promise broken."""
        text = self.source(root)
        assert text.count(self.find) == 1, f"{self.name}: {text.count(self.find)} places"
        return text.replace(self.find, self.change)

    @property
    def line(self) -> str:
        """The line that counts, for people: the first that the change takes away."""
        kept = set(self.change.splitlines())
        lines = self.find.splitlines()
        return next((each for each in lines if each not in kept), lines[0]).strip()


def load() -> tuple[Mutant, ...]:
    files = sorted(HERE.glob("*.toml"))
    rows = [row for file in files for row in tomllib.loads(file.read_text())["mutant"]]
    return tuple(Mutant(**{"change": "", **row, "rules": tuple(row["rules"])}) for row in rows)
