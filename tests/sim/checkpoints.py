"""Checkpoints of the simulation: the state is a list of texts, one run per epoch."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lamina.format.canonical import sha256_hex
from lamina.format.names import CheckpointPaths
from lamina.ids import CheckpointId
from lamina.protocol.driver import Commit, Point
from lamina.store.base import Store


@dataclass(frozen=True)
class SimManifest:
    epoch: int
    files: tuple[tuple[str, str], ...]  # path and SHA-256, oldest run first
    carried: tuple[Commit, ...]  # COMMITs that some sink has not got yet (R7)


def write_manifest(manifest: SimManifest) -> bytes:
    value = {
        "epoch": manifest.epoch,
        "files": manifest.files,
        "carried": [_commit(c) for c in manifest.carried],
    }
    return json.dumps(value).encode()


def read_manifest(data: bytes, where: str) -> SimManifest:
    value = json.loads(data)
    return SimManifest(
        value["epoch"],
        tuple((path, sha256) for path, sha256 in value["files"]),
        tuple(_read_commit(c) for c in value["carried"]),
    )


def save_state(
    store: Store,
    paths: CheckpointPaths,
    id: CheckpointId,
    *,
    epoch: int,
    state: tuple[str, ...],
    parent: tuple[SimManifest, tuple[str, ...]] | None,
    carried: tuple[Commit, ...],
) -> bytes:
    """Upload what the parent does not have, then the manifest; returns its bytes."""
    files: list[tuple[str, str]] = []
    new = state
    if parent is not None and state[: len(parent[1])] == parent[1]:
        files, new = list(parent[0].files), state[len(parent[1]) :]
    kind = paths.delta if files else paths.snapshot
    data = json.dumps(new).encode()
    key = kind(id, "op", 0, first=0, last=epoch)
    store.put_if_absent(key, data)
    relative = paths.relative(key)
    assert relative is not None
    files.append((relative, sha256_hex(data)))
    manifest = write_manifest(SimManifest(epoch, tuple(files), carried))
    store.put_if_absent(paths.manifest(id), manifest)
    return manifest


def load_state(
    store: Store, paths: CheckpointPaths, id: CheckpointId
) -> tuple[SimManifest, tuple[str, ...]] | str:
    """The manifest and the state, or what is wrong with a file of it."""
    manifest = read_manifest(store.get(paths.manifest(id)), str(id))
    state: list[str] = []
    for path, sha256 in manifest.files:
        data = store.get(paths.absolute(path))
        if sha256_hex(data) != sha256:
            return f"{path} is damaged"
        state += json.loads(data)
    return manifest, tuple(state)


def _commit(commit: Commit) -> list[object]:
    return [_point(commit.point), _point(commit.parent), _point(commit.follows), commit.generation]


def _point(point: Point | None) -> list[object] | None:
    return None if point is None else [point.epoch, point.digest]


def _read_commit(value: list[list[object]]) -> Commit:
    point, parent, follows, generation = value
    return Commit(_read_point(point), _read_point(parent), _read_point(follows), generation)  # type: ignore[arg-type]


def _read_point(value: list[object] | None) -> Point | None:
    return None if value is None else Point(*value)  # type: ignore[arg-type]
