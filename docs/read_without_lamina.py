"""Reads the keyed state of a checkpoint without Lamina: the standard library and pyarrow only.

    python read_without_lamina.py FOLDER OPERATOR [CHECKPOINT_ID]  >  rows.jsonl

FOLDER is a store on a local disk, the one with log/ in it. Prints every row as one line of JSON:
bytes as hex; times, dates and decimals as text. FORMAT.md sections 3, 4 and 8 are what this does.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def existing_checkpoints(folder: Path) -> dict:
    """Section 3: the log says which checkpoints exist. Each entry names the digest of the last."""
    found, previous = {}, None
    for number, path in enumerate(sorted((folder / "log").glob("*.json")), 1):
        data = path.read_bytes()
        entry = json.loads(data)
        if entry["seq"] != number or entry["previous"] != previous:
            sys.exit(f"{path}: the log has a hole, or was changed")
        if entry["kind"] == "CHECKPOINT":
            found[entry["body"]["id"]] = entry["body"] | {"seq": number}
        if entry["kind"] == "FORGET":
            found = {id: body for id, body in found.items() if id not in entry["body"]["ids"]}
        previous = sha256(data)
    return found


def read_manifest(folder: Path, checkpoint: dict) -> dict:
    """Section 4: one JSON file that names everything else; its own digest is in the log."""
    path = folder / checkpoint["id"] / "manifest.json"
    data = path.read_bytes()
    if sha256(data) != checkpoint["manifest_sha256"]:
        sys.exit(f"{path}: this is not the manifest that the log names")
    manifest = json.loads(data)
    if manifest["version"] != 3 or set(manifest["features"]) - {"keyed-state-1"}:
        sys.exit(f"{path}: this needs a newer reader")
    return manifest


def read_run(folder: Path, run: dict) -> pa.Table:
    """Section 8: an Arrow IPC stream, in a file or in the manifest itself."""
    inline = "state_b64" in run
    data = base64.b64decode(run["state_b64"]) if inline else (folder / run["path"]).read_bytes()
    if sha256(data) != run["sha256"]:
        sys.exit(f"{run.get('path', 'an inline run')}: it does not match its digest")
    return pa.ipc.open_stream(data).read_all()  # ends before the footer, which we do not need


def read_partition(folder: Path, runs: list, keyed: dict) -> Iterator[dict]:
    """Newest wins: runs are oldest first, so a later row takes the place of an earlier one."""
    names = [column["name"] for column in keyed["key"] + keyed["value"]]
    rows, floor = {}, None
    for run in runs:
        table = read_run(folder, run)
        first, last = run["ranks"]  # after a change of P only a slice of a file counts here
        times = [None] * len(table)
        if keyed.get("time"):  # as integers in the column's own unit: what floors are given in
            column = table[keyed["time"]]
            words = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
            times = column.cast(words).to_pylist()
        said = table.schema.metadata.get(b"lamina.floor")
        if said is not None:  # everything from before it is gone, in this run and in older ones
            floor = int(said) if floor is None else max(floor, int(said))
        for row, time in zip(table.to_pylist(), times, strict=True):
            if not first <= row["_slot"] >> 56 <= last:
                continue
            key = repr([row[column["name"]] for column in keyed["key"]])  # repr: NaN is one key
            if row["_op"] == 1:
                rows.pop(key, None)  # a delete
            else:  # a run from before a value column was added does not have it: null
                rows[key] = {name: row.get(name) for name in names}, time
    for row, time in rows.values():
        if floor is None or time is None or time >= floor:
            yield row


def main(folder: Path, operator: str, id: str | None = None) -> None:
    checkpoints = existing_checkpoints(folder)  # the newest has the highest epoch
    newest = max(checkpoints.values(), key=lambda body: (body["epoch"], body["seq"]))
    manifest = read_manifest(folder, newest if id is None else checkpoints[id])
    state = manifest["operators"][operator]
    for runs in state["partitions"].values():  # each has keys of its own
        for row in read_partition(folder, runs, state["keyed"]):
            text = json.dumps(row, default=lambda v: v.hex() if isinstance(v, bytes) else str(v))
            sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
