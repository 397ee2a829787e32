"""How much memory a recovery takes besides mapped pages, in a process of its own.

The restored files are mapped, and mapped pages are the kernel's to give back, so it is the
anonymous memory that counts: RssAnon of /proc/self/status, looked at every two milliseconds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path


def measure(home: Path, store: Path, scratch: Path) -> float:
    """The highest anonymous memory above that of the imports, in MiB."""
    arguments = [str(home), str(store), str(scratch)]
    child = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True
    )
    return float(child.stdout)


def in_child(home: Path, store: Path, scratch: Path) -> float:
    from wal import recover  # noqa: PLC0415  the child is this module, and imports its parent

    baseline = peak = _anonymous()
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, _anonymous())

    looker = threading.Thread(target=look)
    looker.start()
    recover(home, store, scratch)
    done.set()
    looker.join()
    return (peak - baseline) / 1024


def _anonymous() -> int:
    """In KiB."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


if __name__ == "__main__":
    print(in_child(*map(Path, sys.argv[1:4])))
