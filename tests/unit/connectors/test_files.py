"""The file system of sinks: what is durable when a call returns, on the real disk."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from lamina.connectors.parquet import ParquetSink
from lamina.disk.files import LocalFiles, create_once, make_folder, replace
from tests.contract.sinks import PIPELINE, Output
from tests.support.syncs import record_syncs


def test_the_bytes_of_a_new_file_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    LocalFiles().create(tmp_path / "file", BytesIO(b"all of it"))
    assert syncs.sizes == {str(tmp_path / "file"): 9}
    with pytest.raises(FileExistsError):
        LocalFiles().create(tmp_path / "file", BytesIO(b"other"))


def test_a_folder_that_is_synced_is_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    LocalFiles().sync(tmp_path)
    assert syncs.paths == [tmp_path]


def test_every_folder_that_is_made_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    folder = tmp_path / "new" / "deep" / "out"
    make_folder(LocalFiles(), folder)
    made = [folder.parent.parent.parent, folder.parent.parent, folder.parent]
    assert syncs.paths == [tmp_path.parent, *made]


def test_a_folder_whose_maker_died_before_it_synced_it_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left").mkdir()
    syncs = record_syncs(monkeypatch)
    make_folder(LocalFiles(), tmp_path / "left" / "out")
    assert syncs.paths == [tmp_path, tmp_path / "left"]


def test_a_small_file_is_replaced_whole_and_its_name_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, syncs = tmp_path / "file", record_syncs(monkeypatch)
    for data in (b"first", b"second"):
        replace(LocalFiles(), path, BytesIO(data))
        assert path.read_bytes() == data
        assert syncs.paths[-1] == tmp_path
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_of_two_who_create_a_file_one_does(tmp_path: Path) -> None:
    """Also if both have one process id, as processes in containers have."""
    first, second, path = LocalFiles(), LocalFiles(), tmp_path / "file"
    assert first.tag != second.tag
    assert create_once(first, path, BytesIO(b"first"))
    assert not create_once(second, path, BytesIO(b"second"))
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_both_folders_of_the_parquet_sink_are_synced_for_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one with its entry, then the one with its new name."""
    sink, output = ParquetSink("out", tmp_path / "out"), Output(tmp_path / "home")
    sink.fence(1, PIPELINE)
    publication = output.publication(1, [[1]])
    syncs = record_syncs(monkeypatch)
    sink.publish(publication)
    folder = tmp_path / "out"
    entry = next(path for path in syncs.paths if path.parent == folder / "_lamina" / "log")
    assert syncs.since(entry) == [folder / "_lamina" / "log", folder]
    prepared = next(path for path in syncs.paths if path.name.startswith(".epoch-"))
    assert folder in syncs.since(prepared), "the name of what an entry promises comes before it"
