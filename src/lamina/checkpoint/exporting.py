"""One checkpoint as one tar file, and back into a store. FORMAT.md section 13 is the layout.

An export is read twice: once to prove every byte of it, and only then, if nothing is wrong, into
the store. So an archive that is cut short, changed or foreign leaves the target as it was.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lamina.checkpoint import artifacts
from lamina.checkpoint.artifacts import Digest
from lamina.checkpoint.checkpointer import Checkpointer
from lamina.checkpoint.progress import Progress, Report, silent
from lamina.checkpoint.transfer import CopyReport, arrive
from lamina.clock import SystemClock, new_writer_id
from lamina.disk.folders import sync_folder
from lamina.errors import AlreadyExists, BadManifest, Corrupt, DigestMismatch, NotFound, UsageError
from lamina.format import export, validation
from lamina.format import manifest as manifests
from lamina.format.export import BLOCK, END, SUMS, Member
from lamina.format.manifest import MANIFEST_BYTES_MAX, Artifact, CheckpointManifest
from lamina.ids import CheckpointId
from lamina.os_errors import typed_errors
from lamina.store.base import PART_SIZE_BYTES

Put = Callable[[str, bytes | Path], None]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export of a checkpoint consists of, before a file of it is read."""

    id: CheckpointId
    epoch: int
    files: tuple[Artifact, ...]
    bytes: int  # of the whole archive


@dataclass(frozen=True, slots=True)
class Export:
    """An archive that has been proven whole."""

    path: Path
    manifest: CheckpointManifest
    raw: Digest
    bytes: int


def plan_export(source: Checkpointer, id: CheckpointId) -> ExportPlan:
    """Its size to the byte, from the manifest alone."""
    manifest, entry = source.load_manifest(id), source.find(id).entry
    files = _files(manifest)
    members = _members(id, Digest(entry.manifest_sha256, entry.manifest_size), files)
    return ExportPlan(id, manifest.epoch, files, export.total_size(members))


def export_checkpoint(
    source: Checkpointer, id: CheckpointId, path: Path, *, report: Report = silent
) -> ExportPlan:
    """Write the archive; it is complete and synced, or not there. AlreadyExists if there is one."""
    plan, entry = plan_export(source, id), source.find(id).entry
    raw = Digest(entry.manifest_sha256, entry.manifest_size)
    first, sums, *members = _members(id, raw, plan.files)
    key = source.paths.manifest(id)
    with _appearing(path) as file:
        _append(file, source, first, key, Artifact(key, raw.size, raw.sha256))
        text = export.encode_sums(_listed(first, raw, plan.files))
        file.write(sums.header + text + bytes(export.padding(sums.size)))
        for member, artifact in zip(members, plan.files, strict=True):
            _append(file, source, member, source.paths.absolute(artifact.path), artifact)
            report(Progress(file.tell(), plan.bytes, "bytes", artifact.path))
        file.write(END)
    return plan


def read_export(path: Path, *, report: Report = silent) -> Export:
    """Prove every byte of an archive; raises what is wrong with it, and where."""
    return _Reading(path, report).run(lambda _key, _data: None)


def import_export(found: Export, target: Checkpointer, *, report: Report = silent) -> CopyReport:
    """Make the checkpoint of a proven archive exist at the target, and read it back.

    Killed on the way, the target has no checkpoint; the same call continues.
    """

    def put(name: str, data: bytes | Path) -> None:
        target.store.put_if_absent(target.paths.absolute(name), data)

    return arrive(
        target,
        found.manifest,
        found.raw,
        str(found.path),
        put_files=lambda: _put_all(found, put, report),
    )


def _put_all(found: Export, put: Put, report: Report) -> None:
    again = _Reading(found.path, report).run(put)
    if again.raw != found.raw:
        raise DigestMismatch("the archive has changed since it was checked", where=str(found.path))


def _files(manifest: CheckpointManifest) -> tuple[Artifact, ...]:
    """All files, in the order of the archive."""
    found = sorted(set(manifest.artifacts()))
    for artifact in found:
        if artifact.size is None or artifact.sha256 is None:
            raise UsageError(
                f"the manifest does not say size and digest of {artifact.path}",
                advice="Checkpoints of LaminarDB are exported after `lamina import`",
            )
    return tuple(found)


def _members(id: CheckpointId, raw: Digest, files: tuple[Artifact, ...]) -> list[Member]:
    first = export.manifest_member(id, raw.size)
    sums = export.encode_sums(_listed(first, raw, files))
    rest = (Member(artifact.path, artifact.size or 0) for artifact in files)
    return [first, Member(SUMS, len(sums)), *rest]


def _listed(first: Member, raw: Digest, files: tuple[Artifact, ...]) -> list[tuple[str, str]]:
    listed = ((artifact.sha256 or "", artifact.path) for artifact in files)
    return [(raw.sha256, first.name), *listed]


def _append(
    file: BinaryIO, source: Checkpointer, member: Member, key: str, expected: Artifact
) -> None:
    file.write(member.header)
    artifacts.append(file, source.store, key, expected)
    file.write(bytes(export.padding(member.size)))


@contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """A new file that is there only when it is whole; what a kill leaves has another name."""
    partial = path.with_name(f".{path.name[:100]}.{new_writer_id(SystemClock())[:8]}.partial")
    with typed_errors(path):
        if path.exists():
            raise AlreadyExists("this file exists", where=str(path), advice="Choose another name")
        try:
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.link(partial, path)
            sync_folder(path.absolute().parent)
        except FileExistsError:
            raise AlreadyExists("this file exists", where=str(path)) from None
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()


class _Reading:
    """One walk through an archive: every header is the only right one, every file is proven."""

    def __init__(self, path: Path, report: Report) -> None:
        self._path = path
        self._where = str(path)
        self._report = report

    def run(self, put: Put) -> Export:
        """Give every file to *put* as soon as it is proven, the manifest last."""
        with (
            typed_errors(self._path),
            tempfile.TemporaryDirectory(prefix="lamina-import-") as scratch,
            self._opened() as file,
        ):
            total = os.fstat(file.fileno()).st_size
            manifest, raw, data = self._head(file)
            files = _files(manifest)
            members = _members(manifest.checkpoint_id, raw, files)[2:]
            for member, artifact in zip(members, files, strict=True):
                put(artifact.path, self._file(file, member, artifact, Path(scratch)))
                self._report(Progress(file.tell(), total, "bytes", artifact.path))
            self._end(file)
            put(f"{manifest.checkpoint_id}/manifest.json", data)
        return Export(self._path, manifest, raw, total)

    def _opened(self) -> BinaryIO:
        try:
            return self._path.open("rb")
        except FileNotFoundError:
            raise NotFound("there is no such file", where=self._where) from None

    def _head(self, file: BinaryIO) -> tuple[CheckpointManifest, Digest, bytes]:
        """The manifest, once its digest is proven."""
        id, size = export.read_manifest_header(file.read(BLOCK), self._where)
        if size > MANIFEST_BYTES_MAX:
            raise BadManifest(f"a manifest of {size} bytes", where=self._where)
        data = self._padded(file, size)
        raw = Digest(hashlib.sha256(data).hexdigest(), size)
        sums = self._sums(file, export.manifest_member(id, size), raw)
        manifest = manifests.decode(data, f"{self._where}: {id}/manifest.json")
        if manifest.origin is not None or manifest.checkpoint_id != id:
            raise BadManifest(f"the manifest is not that of checkpoint {id}", where=self._where)
        validation.check(manifest, expected_vnodes=manifest.vnode_count)
        listed = _listed(export.manifest_member(id, size), raw, _files(manifest))
        if sums != export.encode_sums(listed):
            raise DigestMismatch(f"{SUMS} and the manifest do not agree", where=self._where)
        return manifest, raw, data

    def _sums(self, file: BinaryIO, first: Member, raw: Digest) -> bytes:
        """The list of digests, whose first line vouches for the manifest."""
        size = export.read_sums_header(file.read(BLOCK), self._where)
        if size > MANIFEST_BYTES_MAX:
            raise Corrupt(f"a list of digests of {size} bytes", where=self._where)
        text = self._padded(file, size)
        if not text.startswith(export.encode_sums([(raw.sha256, first.name)])):
            message = f"SHA-256 of the manifest is {raw.sha256}, and {SUMS} has another"
            raise DigestMismatch(message, where=self._where)
        return text

    def _padded(self, file: BinaryIO, size: int) -> bytes:
        data = self._exactly(file, size)
        self._exactly(file, export.padding(size), zeros=True)
        return data

    def _file(
        self, file: BinaryIO, member: Member, artifact: Artifact, scratch: Path
    ) -> bytes | Path:
        """Small ones in memory, large ones through a file."""
        export.check_header(file.read(len(member.header)), member, self._where)
        digest, small = hashlib.sha256(), b""
        local = scratch / "file"
        with local.open("wb") as copy:
            for count in export.blocks_of(member.size, PART_SIZE_BYTES):
                part = self._exactly(file, count)
                digest.update(part)
                if member.size <= PART_SIZE_BYTES:
                    small = part
                else:
                    copy.write(part)
        if digest.hexdigest() != artifact.sha256:
            raise DigestMismatch(
                f"SHA-256 of {artifact.path} is {digest.hexdigest()}, {artifact.sha256} was saved",
                where=self._where,
            )
        self._exactly(file, export.padding(member.size), zeros=True)
        return small if member.size <= PART_SIZE_BYTES else local

    def _end(self, file: BinaryIO) -> None:
        if (self._exactly(file, len(END)), file.read(1)) != (END, b""):
            raise export.foreign_end(self._where)

    def _exactly(self, file: BinaryIO, count: int, *, zeros: bool = False) -> bytes:
        data = file.read(count)
        if len(data) != count:
            raise export.truncated(self._where)
        if zeros and any(data):
            raise export.foreign_padding(self._where)
        return data
