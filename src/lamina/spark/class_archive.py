"""Spark's classes in the form a JVM can map, kept in the user's cache folder: half of a cold start.

The first run that ends leaves a list of the classes it has loaded; a process of its own turns the
list into an archive, beside whatever comes next. Later starts map the archive. It only saves time:
where there is none, or the folder cannot be written, or the JVM refuses it (another Java, other
jars, damage), Spark starts without it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lamina.format.canonical import sha256_hex
from lamina.running.control import is_alive

CACHE = "LAMINA_CACHE"
OFF = "off"
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # else the JVM warns on stdout
KEPT_MAX = 3  # archives of about 200 MB each; the ones used last are kept
MAKING_MAX_S = 900
"""Making one takes half a minute of one core, and more where others want the core, too."""


def find_archive(java: Path, spark_home: Path) -> ClassArchive | None:
    """Where the archive of this Java and this Spark belongs; None if there is no place for it."""
    folder = _cache_folder()
    if folder is None:
        return None
    try:
        built = [(each.stat().st_size, each.stat().st_mtime_ns) for each in (java, spark_home)]
    except OSError:
        return None
    name = sha256_hex(repr((str(java), str(spark_home), built)).encode())[:16]
    return ClassArchive(java, folder / f"spark-{name}.jsa")


def _cache_folder() -> Path | None:
    """As LAMINA_CACHE says; else where the user's caches are."""
    named = os.environ.get(CACHE)
    if named == OFF:
        return None
    if named:
        return Path(named).absolute()
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # nobody's home
        return None
    return caches / "lamina" if caches.is_absolute() else None


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one Spark, which may not be there yet."""

    java: Path
    path: Path

    @property
    def classes(self) -> Path:
        """The list that this process's JVM writes."""
        return self.path.with_suffix(f".{os.getpid()}.classes")

    def options(self) -> list[str]:
        """For the JVM: use the archive, or list the classes for one; nothing if neither will do."""
        if not self.path.is_file():
            return self._listing()
        with suppress(OSError):  # not ours to touch, but maybe to read
            os.utime(self.path)
        checked = "-XX:+VerifySharedSpaces"  # else a flipped bit is code that runs
        return [f"-XX:SharedArchiveFile={self.path}", checked, *_QUIET]

    def _listing(self) -> list[str]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(self.path.parent)
            self.classes.touch()
        except OSError:
            return []
        return [f"-XX:DumpLoadedClassList={self.classes}", *_QUIET]

    def make_beside(self, class_path: str) -> None:
        """Turn the list, if there is one, into the archive; in a process that outlives this one."""
        with suppress(OSError):
            if self.classes.stat().st_size == 0:  # the JVM was there already, and lists nothing
                self.classes.unlink()
                return
            places = [str(each) for each in (self.java, self.path, self.classes)]
            command = [sys.executable, "-m", __name__, *places, class_path]
            subprocess.Popen(  # noqa: S603  this module again
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


def make(java: Path, path: Path, classes: Path, class_path: str) -> bool:
    """Make the archive of a list of classes; whether it is there now. The list goes."""
    made, listed = (path.with_suffix(f".{os.getpid()}.{what}") for what in ("new", "classes"))
    try:
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # somebody else may be at it
            text = classes.read_text()
            listed.write_text(text[: text.rfind("\n") + 1])  # a JVM may still be writing
            use = (f"-XX:SharedArchiveFile={made}", "-cp", class_path)
            _java(java, "-Xshare:dump", f"-XX:SharedClassListFile={listed}", *use)
            _java(java, "-Xshare:on", "-XX:+VerifySharedSpaces", *use, "-version")
            made.replace(path)
            _keep_newest(path.parent)
            return True
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return False
    finally:
        for left in (made, listed, classes):
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _java(java: Path, *options: str) -> None:
    subprocess.run(  # noqa: S603  the Java that Spark runs on
        [java, "-Xlog:disable", *options], check=True, capture_output=True, timeout=MAKING_MAX_S
    )


def _keep_newest(folder: Path) -> None:
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime)
    for each in archives[:-KEPT_MAX]:
        each.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Files of processes that are gone: `spark-<name>.<pid>.new` and `.classes`."""
    for each in (*folder.glob("spark-*.classes"), *folder.glob("spark-*.new")):
        pid = each.name.split(".")[1]
        if pid.isdecimal() and not is_alive(int(pid)):
            each.unlink(missing_ok=True)


if __name__ == "__main__":
    os.nice(19)
    _java_path, _path, _classes = map(Path, sys.argv[1:4])
    sys.exit(not make(_java_path, _path, _classes, sys.argv[4]))
