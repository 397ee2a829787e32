"""Checkpoints of Structured Streaming that a real Spark has made, and ways to damage them.

Each damage says what a restart does with it; tests/spark asks Spark itself whether that is so.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lamina.format.spark_files import hadoop_sidecar
from lamina.inspect.spark_checkpoint import Does

GOLDEN = Path(__file__).parents[1] / "golden" / "spark"
NAMES = {  # and the batch that comes next
    "hdfs": 10,
    "rocksdb": 4,
    "rocksdb-changes": 4,
    "global": 2,
    "join": 4,
    "stateless": 3,
}

Damage = Callable[[Path], None]


def unpack(name: str, folder: Path) -> Path:
    """A golden checkpoint in *folder*, to do with as a test likes."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder


def keys(folder: Path) -> list[str]:
    """All files but sidecars."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(key for key in found if not key.endswith(".crc"))


def remove(*names: str) -> Damage:
    """Files or folders that are gone, with their sidecars."""

    def damage(folder: Path) -> None:
        for name in names:
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            else:
                (folder / name).unlink()
                (folder / hadoop_sidecar(name)).unlink(missing_ok=True)

    return damage


def cut(name: str, size: int) -> Damage:
    """A file that ends early, as on a disk without sidecars."""

    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:size])
        (folder / hadoop_sidecar(name)).unlink(missing_ok=True)

    return damage


def flip(folder: Path, name: str, at: int) -> None:
    """One byte that is another; the sidecars stay."""
    data = bytearray((folder / name).read_bytes())
    data[at] ^= 0x10
    (folder / name).write_bytes(data)


def drop_sidecars(folder: Path) -> None:
    """As in an object store, where Hadoop writes none."""
    for path in folder.rglob("*.crc"):
        path.unlink()


@dataclass(frozen=True)
class Case:
    """A damage to the checkpoint `hdfs`, whose last batch is 9."""

    name: str
    damage: Damage
    does: Does
    batch: int
    code: str = ""  # of the first finding


CASES = (
    Case("nothing", lambda _: None, Does.CONTINUES, 10),
    Case("no commit", remove("commits/9"), Does.REPEATS, 9),
    Case("two commits less", remove("commits/8", "commits/9"), Does.REPEATS, 9, "S005"),
    Case("commit without offsets", remove("offsets/9"), Does.STOPS, 8, "S004"),
    Case("no offsets before", remove("offsets/8"), Does.STOPS, 10, "S003"),
    Case("old gap", remove("offsets/5", "commits/5"), Does.CONTINUES, 10, "S006"),
    Case("torn offsets", cut("offsets/9", 40), Does.STOPS, 10, "S011"),
    Case("empty offsets", cut("offsets/9", 0), Does.STOPS, 10, "S011"),
    Case("torn commit", cut("commits/9", 10), Does.STOPS, 10, "S011"),
    Case("torn old commit", cut("commits/4", 10), Does.CONTINUES, 10, "S011"),
    Case("no state", remove("state/0/0/10.delta"), Does.STOPS, 10, "S010"),
    Case("no old state", remove("state/0/0/5.delta"), Does.CONTINUES, 10),
    Case(
        "repeats without later state",
        remove("commits/9", "state/0/0/10.delta"),
        Does.REPEATS,
        9,
    ),
    Case("a partition gone", remove("state/0/1"), Does.STOPS, 10, "S010"),
    Case("no id", remove("metadata"), Does.STOPS, 10, "S001"),
    Case("source log behind", remove("sources/0"), Does.STOPS, 10, "S008"),
    Case("source log without its last", remove("sources/0/4"), Does.LOSES, 10, "S015"),
    Case("source log with a gap", remove("sources/0/3"), Does.STOPS, 10, "S009"),
    Case("no offsets at all", remove("offsets"), Does.STOPS, 0, "S002"),
)
