"""How much memory an epoch takes besides mapped pages, in a process of its own.

Run files are mapped, and mapped pages are the kernel's to give back, so it is the anonymous memory
that counts: RssAnon of /proc/self/status, looked at every millisecond. What is reported is its
highest value while epochs are made, above that before the store was opened: so what an open store
keeps is in it, too. The allocators are told to give memory back at once, or it would be theirs that
is measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from state_peers import Ours, all_keys, batch_of

from lamina.state.tiers import FAN_OUT

EPOCHS = 2 * FAN_OUT * FAN_OUT  # merges of merged runs are among them
AT_ONCE = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "65536"}


def measure(path: Path, *, keys: int, changed: int) -> float:
    """The peak of an epoch that changes *changed* of the *keys* of a store, in MiB."""
    arguments = [str(path), str(keys), str(changed)]
    child = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, **AT_ONCE},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(child.stdout)


def in_child(path: Path, keys: int, changed: int) -> float:
    random = np.random.default_rng(11)
    known = all_keys(keys)
    batches = [batch_of(random.choice(known, changed, replace=False)) for _ in range(EPOCHS)]
    del known
    baseline = _anonymous()
    ours = Ours(path)
    ours.upsert(batches[0])()
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
