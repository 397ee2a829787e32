"""Checkpoints that survive kill -9, and damage that is found.

A child process counts words into two partitions and checkpoints every epoch. It is killed with
SIGKILL in the middle of its third checkpoint. What is left is whole; a second process takes over
and goes on. Then one byte is flipped, and found.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import lamina
from lamina import Checkpointer, PartitionData

WORDS = ["spark", "epoch", "log", "spark", "run", "log", "spark", "vnode"]
PARTITIONS = 2


def count(state: Mapping[str, int], epoch: int) -> dict[str, int]:
    """One epoch of work: the counts that it changes."""
    words = WORDS[epoch % 4 :]
    return {word: state.get(word, 0) + words.count(word) for word in words}


def restore(checkpointer: Checkpointer) -> tuple[int, dict[str, int]]:
    """The newest checkpoint's epoch and state; every byte is proven on the way."""
    newest = checkpointer.read_latest()
    if newest is None:
        return 0, {}
    manifest = checkpointer.load_manifest(newest)
    state: dict[str, int] = {}
    for runs in manifest.operators["counts"].partitions.values():
        for run in runs:  # oldest first: the newest value wins
            state.update(json.loads(checkpointer.load_artifact(run)))
    return manifest.epoch, state


def work(store_url: str, until_epoch: int, die_in_epoch: int) -> None:
    """Take over, restore, then one checkpoint per epoch."""
    checkpointer = Checkpointer(lamina.open_store(store_url))
    checkpointer.log.take_over(home=f"process {os.getpid()}")
    epoch, state = restore(checkpointer)
    parent = checkpointer.read_latest()
    while epoch < until_epoch:
        epoch += 1
        changed = count(state, epoch)
        state.update(changed)
        begin = checkpointer.begin(parent)
        parts = [changed_part(changed, epoch, number) for number in range(PARTITIONS)]
        if epoch == die_in_epoch:
            checkpointer.save_partitions(begin.id, parts[:1])
            os.kill(os.getpid(), signal.SIGKILL)  # half of the checkpoint is uploaded
        new = checkpointer.save_partitions(begin.id, parts)
        old = placed_runs(checkpointer, parent)
        manifest = lamina.CheckpointManifest(
            checkpoint_id=begin.id,
            epoch=epoch,
            timestamp_ms=begin.timestamp_ms,
            source_offsets={"words": lamina.ConnectorCheckpoint({"line": str(epoch)}, epoch)},
        )
        parent = checkpointer.commit(begin, lamina.with_runs(manifest, [*old, *new])).id


def changed_part(changed: Mapping[str, int], epoch: int, partition: int) -> PartitionData:
    mine = {w: n for w, n in sorted(changed.items()) if len(w) % PARTITIONS == partition}
    data = json.dumps(mine).encode()
    kind = "snap" if epoch == 1 else "delta"
    return PartitionData("counts", partition, kind, epoch, epoch, len(mine), data)


def placed_runs(
    checkpointer: Checkpointer, id: lamina.CheckpointId | None
) -> list[lamina.PlacedEntry]:
    """What the parent has: it is named again, not uploaded again."""
    if id is None:
        return []
    operators = checkpointer.load_manifest(id).operators
    return [
        lamina.PlacedEntry(name, number, run)
        for name, operator in operators.items()
        for number, runs in operator.partitions.items()
        for run in runs
    ]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show(*arguments: str) -> int:
    """Run the command line as a user would."""
    say(f"\n$ lamina {' '.join(arguments)}")
    lamina_command = Path(sys.executable).with_name("lamina")
    return subprocess.run([lamina_command, *arguments], check=False).returncode


def child(store_url: str, until_epoch: int, die_in_epoch: int) -> int:
    command = [sys.executable, __file__, store_url, str(until_epoch), str(die_in_epoch)]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="lamina-demo-") as folder:
        say("A process makes a checkpoint per epoch and is killed in the middle of its third ...")
        assert child(folder, until_epoch=6, die_in_epoch=3) == -signal.SIGKILL
        show("list", "--store", folder)
        say("\n... what is listed is whole. A second process takes over and goes on to epoch 6.")
        assert child(folder, until_epoch=6, die_in_epoch=0) == 0
        checkpointer = Checkpointer(lamina.open_store(folder))
        epoch, state = restore(checkpointer)
        expected: dict[str, int] = {}
        for each in range(1, 7):
            expected.update(count(expected, each))
        verdict = "EQUAL" if (epoch, state) == (6, expected) else "DIFFERENT"
        say(f"state after the kill: {state}\nuninterrupted run:    {expected}\n=> {verdict}")
        show("gc", "--store", folder, "--retain", "2", "--yes")
        whole = show("verify", "--store", folder)
        say("\nNow one bit of one file rots.")
        victim = next(Path(folder).glob("*/operators/counts/*.delta"))
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
        damaged = show("verify", "--store", folder)
        found = whole == 0 and damaged == 4
        say(f"\n=> {'found' if found else 'NOT FOUND'} (exit code {damaged})")
        return 0 if verdict == "EQUAL" and found else 1


if __name__ == "__main__":
    if len(sys.argv) == 4:
        work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
