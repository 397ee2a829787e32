"""How much memory an epoch takes besides mapped pages, in a process of its own.

Run files are mapped, and mapped pages are the kernel's to give back, so it is the anonymous memory
that counts: RssAnon of /proc/self/status, looked at every millisecond. What is reported is its
highest value while epochs are made, above that before the store was opened: so what an open store
keeps is in it, too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
from state_peers import Ours, all_keys, batch_of

EPOCHS = 6  # a merge is among them


def measure(path: Path, *, keys: int, changed: int) -> float:
    """The peak of an epoch that changes *changed* of the *keys* of a store, in MiB."""
    arguments = [str(path), str(keys), str(changed)]
    child = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True, text=True
    )
    return float(child.stdout)


def in_child(path: Path, keys: int, changed: int) -> float:
    random = np.random.default_rng(11)
    known = all_keys(keys)
    batches = [batch_of(random.choice(known, changed, replace=False)) for _ in range(EPOCHS)]
    del known
    pa.default_memory_pool().release_unused()
    baseline = _anonymous()
    ours = Ours(path)
    ours.upsert(batches[0])()  # what opening took is given back, what it keeps stays
    pa.default_memory_pool().release_unused()
    peak = _anonymous()
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, _anonymous())

    looker = threading.Thread(target=look)
    looker.start()
    for batch in batches[1:]:
        ours.upsert(batch)()
    done.set()
    looker.join()
    ours.close()
    return (peak - baseline) / 1024


def _anonymous() -> int:
    """In KiB."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


if __name__ == "__main__":
    print(in_child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
