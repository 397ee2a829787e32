"""Breaks every promise of the table in a scratch copy, and sees the named test fail.

python -m tests.mutants.run [NAME...] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.table import ROOT, Mutant, load

COPIED = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md")
TIMEOUT_S = 300
PASSED, FAILED = 0, 1  # pytest's exit codes; all others say that nothing was tested


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed: bool
    why: str = ""


class Scratch:
    """A copy of the tree, in which one file at a time is broken."""

    def __init__(self, root: Path, source: Path = ROOT) -> None:
        self.root = root
        skip = shutil.ignore_patterns("node_modules", *(() if source != ROOT else ("__pycache__",)))
        for name in COPIED:
            if (source / name).is_dir():
                shutil.copytree(source / name, root / name, ignore=skip)
            else:
                shutil.copy2(source / name, root / name)

    def check(self, tests: Sequence[str]) -> None:
        """Without a change the tests pass; otherwise they prove nothing.

        Python keeps what it compiles here, and never afterwards: a change made within a second of
        another one could be taken for it.
        """
        done = self._pytest(tests, keep_compiled=True)
        if done.returncode != PASSED:
            sys.exit(f"the tests fail without any change:\n{done.stdout[-4000:]}{done.stderr}")

    def verdict(self, mutant: Mutant) -> Verdict:
        path = self.root / mutant.file
        whole = path.read_text()
        path.write_text(mutant.broken(self.root))
        try:
            done = self._pytest([mutant.test])
        except subprocess.TimeoutExpired:
            return Verdict(mutant, killed=False, why=f"it took more than {TIMEOUT_S} s")
        finally:
            path.write_text(whole)
        if done.returncode == FAILED:
            return Verdict(mutant, killed=True, why=_failed(done.stdout))
        if done.returncode == PASSED:
            return Verdict(mutant, killed=False, why="the test passes without the line")
        return Verdict(mutant, killed=False, why=f"nothing was tested:\n{done.stdout[-2000:]}")

    def _pytest(
        self, tests: Sequence[str], *, keep_compiled: bool = False
    ) -> subprocess.CompletedProcess[str]:
        options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
        flags = () if keep_compiled else ("-B",)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        return subprocess.run(
            [sys.executable, *flags, "-m", "pytest", *options, *tests],
            cwd=self.root,
            env={**kept, "PYTHONPATH": str(self.root / "src")},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


def _failed(output: str) -> str:
    """The test that has failed, if the table names more than one."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return f"by {found[1]}" if found else ""


@contextmanager
def scratch_copies(number: int, tests: Sequence[str]) -> Iterator[list[Scratch]]:
    """Copies of the tree, in which the tests pass."""
    with tempfile.TemporaryDirectory(prefix="lamina-mutants-") as folder:
        first = Scratch(Path(folder) / "0")
        first.check(tests)
        yield [first, *(Scratch(Path(folder) / str(i), first.root) for i in range(1, number))]


def run(mutants: Sequence[Mutant], jobs: int) -> Iterator[Verdict]:
    """First that the tests pass, then that each fails without its line."""
    with scratch_copies(jobs, sorted({mutant.test for mutant in mutants})) as copies:
        free: queue.Queue[Scratch] = queue.Queue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> Verdict:
            copy = free.get()
            try:
                return copy.verdict(mutant)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(judge, mutants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants by name; by default all")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    mutants = [m for m in load() if not given.names or m.name in given.names]
    if not mutants:
        sys.exit("no mutant has such a name")
    survivors = 0
    for verdict in run(mutants, given.jobs):
        print("killed  " if verdict.killed else "SURVIVED", verdict.mutant.name, verdict.why)
        survivors += not verdict.killed
    print(f"{len(mutants) - survivors} of {len(mutants)} promises are held by their tests")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
