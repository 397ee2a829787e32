"""Exports: one tar, the same bytes every time; what is not exactly one of them is refused."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer, verify
from lamina.checkpoint import exporting as module
from lamina.checkpoint.exporting import export_checkpoint, import_export, plan_export, read_export
from lamina.errors import (
    AlreadyExists,
    BadManifest,
    Corrupt,
    DigestMismatch,
    LaminaError,
    NotFound,
    Refused,
    StoreUnavailable,
    Unsupported,
)
from lamina.format.export import BLOCK, SUMS, Member
from lamina.store import LocalStore, MemoryStore
from lamina.testing import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed
from tests.support.command_line import Pipeline, answer, lamina, make_pipeline, tree

GOLDEN = Path(__file__).parents[2] / "golden" / "export" / "epoch-20.tar"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return make_pipeline(tmp_path_factory.mktemp("export") / "pipeline")


@pytest.fixture(scope="module")
def source(pipeline: Pipeline) -> Checkpointer:
    return Checkpointer(LocalStore(pipeline.root), vnode_count=None)


@pytest.fixture(scope="module")
def archive(pipeline: Pipeline, source: Checkpointer) -> bytes:
    """Epoch 20, with files of two checkpoints."""
    path = pipeline.root.parent / "made.tar"
    export_checkpoint(source, pipeline.ids[1], path)
    return path.read_bytes()


def target_of(store: MemoryStore | FaultyStore | None = None, seed: int = 5) -> Checkpointer:
    clock = ManualClock(seed=seed, now_ms=1_762_000_900_000)
    return Checkpointer(store or MemoryStore(), vnode_count=None, clock=clock)


def test_the_same_checkpoint_is_the_same_bytes_and_as_many_as_were_said(
    archive: bytes, source: Checkpointer, pipeline: Pipeline, tmp_path: Path
) -> None:
    plan = export_checkpoint(source, pipeline.ids[1], tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == archive
    assert len(archive) == plan.bytes == plan_export(source, pipeline.ids[1]).bytes
    assert archive == GOLDEN.read_bytes()


def test_another_checkpoint_of_the_same_id_is_not_taken_for_the_archive(
    archive: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "made.tar"
    path.write_bytes(archive)
    found, target = read_export(path), target_of()
    import_export(found, target)
    other = replace(found, raw=replace(found.raw, sha256="0" * 64))
    with pytest.raises(AlreadyExists, match="another checkpoint"):
        import_export(other, target)


def test_the_name_of_an_export_is_on_disk_when_it_is_said_to_be_there(
    source: Checkpointer,
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has exported deletes the store: after a power cut there must be one of the two."""
    path, synced = tmp_path / "made.tar", list[bool]()

    def fsync(fd: int) -> None:
        if os.path.samestat(os.fstat(fd), tmp_path.stat()):
            synced.append(path.exists())

    monkeypatch.setattr(os, "fsync", fsync)
    export_checkpoint(source, pipeline.ids[1], path)
    assert synced[-1:] == [True]


def test_tar_unpacks_it_and_its_sums_hold(archive: bytes, tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        names = opened.getnames()
        opened.extractall(tmp_path, filter="data")
    assert names[0].endswith("/manifest.json")
    assert names[1] == SUMS
    for line in (tmp_path / SUMS).read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    assert len(names) == 5


def test_what_was_exported_is_imported_byte_for_byte(
    pipeline: Pipeline, source: Checkpointer
) -> None:
    target, id = target_of(), pipeline.ids[1]
    report = import_export(read_export(GOLDEN), target)
    assert report.verified.ok
    assert target.find(id).entry.manifest_sha256 == source.find(id).entry.manifest_sha256
    assert target.load_manifest(id) == source.load_manifest(id)
    assert verify(target).ok
    again = import_export(read_export(GOLDEN), target)
    assert again.checkpoint == report.checkpoint


@pytest.mark.parametrize("when", [FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER])
@pytest.mark.parametrize("operation", ["put", "put_if_absent"])
def test_killed_at_any_put_nothing_counts_and_the_same_call_goes_on(
    operation: str, when: FaultKind
) -> None:
    found, call = read_export(GOLDEN), 0
    while True:
        call += 1
        store = MemoryStore()
        faulty = FaultyStore(store, faults=[Fault(operation, when, call=call)])
        try:
            import_export(found, target_of(faulty))
        except Killed:
            is_whole = verify(target_of(store)).ok
            assert is_whole or not target_of(store).list_checkpoints()
        else:
            break
        import_export(found, target_of(store, seed=call + 50))
        assert verify(target_of(store)).ok
    assert call > 2


def test_a_store_in_which_a_pipeline_lives_is_no_place_for_it() -> None:
    target = target_of()
    target.log.take_over("/srv/orders")
    before = target.history()
    with pytest.raises(Refused, match="a pipeline with its home in /srv/orders is at the target"):
        import_export(read_export(GOLDEN), target)
    assert target.history() == before


def test_an_export_replaces_nothing_and_leaves_nothing_half(
    source: Checkpointer, pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "out.tar"
    path.write_bytes(b"mine")
    with pytest.raises(AlreadyExists):
        export_checkpoint(source, pipeline.ids[1], path)
    assert tree(tmp_path) == {"out.tar": b"mine"}
    down = FaultyStore(source.store, faults=[Fault("get_range", FaultKind.UNAVAILABLE, call=3)])
    with pytest.raises(StoreUnavailable):
        export_checkpoint(Checkpointer(down, vnode_count=None), pipeline.ids[1], tmp_path / "n.tar")
    assert tree(tmp_path) == {"out.tar": b"mine"}


def test_a_damaged_file_of_the_store_is_never_exported(tmp_path: Path) -> None:
    made = make_pipeline(tmp_path / "pipeline")
    file = made.artifact(1)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    source = Checkpointer(LocalStore(made.root), vnode_count=None)
    with pytest.raises(DigestMismatch):
        export_checkpoint(source, made.ids[1], tmp_path / "out.tar")
    assert not (tmp_path / "out.tar").exists()


def test_large_files_go_through_a_file_and_not_through_memory(
    source: Checkpointer, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_SIZE_BYTES", 100)
    target = target_of()
    assert import_export(read_export(GOLDEN), target).verified.ok
    assert verify(target).ok


# what is not an export


def refused(data: bytes, tmp_path: Path) -> LaminaError:
    path = tmp_path / "bad.tar"
    path.write_bytes(data)
    with pytest.raises(LaminaError) as found:
        read_export(path)
    assert str(path) in found.value.where
    return found.value


def test_cut_anywhere_it_is_refused(archive: bytes, tmp_path: Path) -> None:
    cuts = {*range(0, len(archive), BLOCK), *range(1, len(archive), 1499), len(archive) - 1}
    for cut in sorted(cuts):
        assert isinstance(refused(archive[:cut], tmp_path), Corrupt), cut


def test_any_byte_that_is_changed_is_found(archive: bytes, tmp_path: Path) -> None:
    for at in range(0, len(archive), 37):
        data = bytearray(archive)
        data[at] ^= 0x01
        refused(bytes(data), tmp_path)


def _parts(archive: bytes) -> list[bytes]:
    """Each member with its header and padding."""
    parts, at = [], 0
    while any(block := archive[at : at + BLOCK]):
        size = int(block[124:135], 8)
        end = at + BLOCK + size + -size % BLOCK
        parts.append(archive[at:end])
        at = end
    return [*parts, archive[at:]]


def _swapped(parts: list[bytes]) -> list[bytes]:
    return [*parts[:2], parts[3], parts[2], *parts[4:]]


def _twice(parts: list[bytes]) -> list[bytes]:
    return [*parts[:3], parts[2], *parts[3:]]


def _extra(name: str, kind: bytes = b"0", size: int = 0) -> Callable[[list[bytes]], list[bytes]]:
    def add(parts: list[bytes]) -> list[bytes]:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, "/etc/passwd" if kind in b"12" else "", size
        return [*parts[:2], info.tobuf(tarfile.USTAR_FORMAT), *parts[2:]]

    return add


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_swapped, "here is a file"),
        (_twice, "here is a file"),
        (lambda parts: [*parts[:2], *parts[3:]], "here is a file"),
        (lambda parts: parts[:4] + parts[5:], "here is the end of the archive where the file"),
        (_extra("../../etc/cron.d/x"), "here is a file '../../etc/cron.d/x'"),
        (_extra("/etc/passwd"), "here is a file '/etc/passwd'"),
        (_extra("x", tarfile.SYMTYPE), "here is a link 'x'"),
        (_extra("x", tarfile.LNKTYPE), "here is a link 'x'"),
        (_extra("x", tarfile.DIRTYPE), "here is a folder 'x/'"),
        (_extra("x", tarfile.CHRTYPE), "here is a device 'x'"),
        (_extra("x", tarfile.XHDTYPE, 2**33 - 1), "here is a pax header 'x' of 8589934591 bytes"),
        (_extra("x", tarfile.GNUTYPE_LONGNAME, 2**33 - 1), "here is a GNU header"),
        (_extra("lamina-export-2.sha256"), "here is a file"),
        (lambda parts: [*parts, b"more"], "something follows the last file"),
        (lambda parts: parts[1:], "not an export of Lamina"),
        (lambda _: [b""], "not an export of Lamina"),
        (lambda _: [b"PK\3\4" + bytes(2000)], "not an export of Lamina"),
    ],
)
def test_a_foreign_archive_is_refused_by_what_is_wrong(
    archive: bytes, change: Callable[[list[bytes]], list[bytes]], said: str, tmp_path: Path
) -> None:
    assert said in refused(b"".join(change(_parts(archive))), tmp_path).message


def test_an_export_of_a_newer_release_says_so(archive: bytes, tmp_path: Path) -> None:
    parts = _parts(archive)
    newer = Member("lamina-export-2.sha256", 0).header
    assert isinstance(refused(b"".join([parts[0], newer, *parts[2:]]), tmp_path), Unsupported)


def test_a_manifest_of_another_checkpoint_is_refused(
    archive: bytes, pipeline: Pipeline, tmp_path: Path
) -> None:
    manifest, sums, *rest = _parts(archive)
    size = int(manifest[124:135], 8)
    head = Member(f"{pipeline.ids[2]}/manifest.json", size).header
    other = sums.replace(str(pipeline.ids[1]).encode(), str(pipeline.ids[2]).encode(), 1)
    found = refused(b"".join([head, manifest[BLOCK:], other, *rest]), tmp_path)
    assert isinstance(found, BadManifest)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_export(tmp_path / "nothing.tar")


@pytest.mark.parametrize(("length", "size"), [(100, 5), (101, 5), (250, 2**33), (3, 2**40)])
def test_long_names_and_large_sizes_are_what_tar_reads(length: int, size: int) -> None:
    member = Member("ü" + "n" * (length - 2), size)
    with tarfile.open(fileobj=io.BytesIO(member.header + bytes(1024)), mode="r|") as opened:
        info = opened.next()
    assert info is not None
    assert (info.name, info.size) == (member.name, size)
    assert len(member.header) % BLOCK == 0


def test_the_commands(pipeline: Pipeline, tmp_path: Path) -> None:
    path, target = tmp_path / "one.tar", tmp_path / "target"
    ask = ("export", "20", path, "--store", pipeline.root, "--json")
    planned = answer(lamina(*ask, "--dry-run"))
    assert not path.exists()
    made = answer(lamina(*ask))
    assert {**planned, "dry_run": False} == made
    assert made["bytes"] == path.stat().st_size
    checked = answer(lamina("import", path, "--store", target, "--dry-run", "--json"))
    assert (checked["epoch"], checked["bytes"], target.exists()) == (20, made["bytes"], False)
    told = answer(lamina("import", path, "--store", target, "--json"))
    assert (told["origin"], told["epoch"], told["verified"]["ok"]) == (None, 20, True)
    path.write_bytes(path.read_bytes()[:-1])
    before = tree(target)
    assert lamina("import", path, "--store", tmp_path / "other").exit_code == 4
    assert (tree(target), (tmp_path / "other").exists()) == (before, False)
