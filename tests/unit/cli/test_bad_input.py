"""Every command on everything that can be wrong: a typed error, its exit code, nothing changed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.cli.checkpoints.log import read_entries
from lamina.errors import NotFound
from lamina.format.log import Hint, encode_hint
from lamina.store import LocalStore
from tests.support.command_line import (
    Pipeline,
    answer,
    lamina,
    make_pipeline,
    tree,
    without_rights,
)

COMMANDS = {
    "list": ("list",),
    "show": ("show",),
    "log": ("log",),
    "verify": ("verify",),
    "gc": ("gc", "--retain", "1", "--yes"),
    "plan": ("gc", "--retain", "1", "--dry-run"),
    "delete": ("delete", "EPOCH-20", "--yes"),
    "create": ("savepoint", "create", "release"),
    "savepoints": ("savepoint", "list"),
    "drop": ("savepoint", "drop", "before-upgrade"),
    "copy": ("copy", "latest", "--to", "TARGET"),
}


@pytest.fixture(scope="module")
def template() -> Iterator[Pipeline]:
    with tempfile.TemporaryDirectory() as folder:
        yield make_pipeline(Path(folder) / "pipeline")


@pytest.fixture
def pipeline(template: Pipeline, tmp_path: Path) -> Pipeline:
    root = tmp_path / "pipeline"
    shutil.copytree(template.root, root)
    return Pipeline(root, "", template.ids)


def no_such_store(pipeline: Pipeline) -> None:
    shutil.rmtree(pipeline.root)


def empty_store(pipeline: Pipeline) -> None:
    shutil.rmtree(pipeline.root)
    pipeline.root.mkdir()


def a_file_for_a_store(pipeline: Pipeline) -> None:
    shutil.rmtree(pipeline.root)
    pipeline.root.write_text("no folder")


def hole_in_the_log(pipeline: Pipeline) -> None:
    pipeline.log_entry(3).unlink()


def damaged_log_entry(pipeline: Pipeline) -> None:
    pipeline.log_entry(5).write_bytes(b'{"seq": 5')


def newer_log_entry(pipeline: Pipeline) -> None:
    document = json.loads(pipeline.log_entry(5).read_bytes())
    pipeline.log_entry(5).write_text(json.dumps(document | {"version": 99}))
    (pipeline.folder / "_latest").write_text('{"version": 99}')


def pointer_to_nothing(pipeline: Pipeline) -> None:
    (pipeline.folder / "_latest").write_bytes(encode_hint(Hint(999, "a" * 64, None)))


def damaged_pointer(pipeline: Pipeline) -> None:
    (pipeline.folder / "_latest").write_bytes(b"\x00")


def damaged_manifest(pipeline: Pipeline) -> None:
    data = pipeline.manifest(2).read_bytes()
    pipeline.manifest(2).write_bytes(data[:-2] + b"?}")


def empty_manifest(pipeline: Pipeline) -> None:
    pipeline.manifest(2).write_bytes(b"")


def missing_manifest(pipeline: Pipeline) -> None:
    pipeline.manifest(2).unlink()


def missing_artifact(pipeline: Pipeline) -> None:
    pipeline.artifact(2).unlink()


# What each command ends with. 0 or 1 means that it works all the same.
EXPECTED: dict[Callable[[Pipeline], None], dict[str, int]] = {
    no_such_store: dict.fromkeys(COMMANDS, 3),
    empty_store: dict.fromkeys(COMMANDS, 3),
    a_file_for_a_store: dict.fromkeys(COMMANDS, 2),
    hole_in_the_log: dict.fromkeys(COMMANDS, 4),
    damaged_log_entry: dict.fromkeys(COMMANDS, 4),
    newer_log_entry: dict.fromkeys(COMMANDS, 6) | {"verify": 4},
    pointer_to_nothing: dict.fromkeys(COMMANDS, 4) | {"log": 0},
    damaged_pointer: dict.fromkeys(COMMANDS, 0) | {"verify": 1},
    damaged_manifest: dict.fromkeys(COMMANDS, 4)
    | {"list": 0, "log": 0, "create": 0, "savepoints": 0, "drop": 0},
    empty_manifest: dict.fromkeys(COMMANDS, 4)
    | {"list": 0, "log": 0, "create": 0, "savepoints": 0, "drop": 0},
    missing_manifest: dict.fromkeys(COMMANDS, 4)
    | {"list": 0, "log": 0, "create": 0, "savepoints": 0, "drop": 0},
    missing_artifact: dict.fromkeys(COMMANDS, 0) | {"verify": 4, "copy": 4},
}
CASES = [(wrong, name) for wrong, expected in EXPECTED.items() for name in expected]


def arguments(name: str, pipeline: Pipeline) -> list[str]:
    filled = {"EPOCH-20": str(pipeline.ids[1]), "TARGET": str(pipeline.root.parent / "target")}
    return [filled.get(word, word) for word in COMMANDS[name]]


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(("wrong", "name"), CASES, ids=lambda v: getattr(v, "__name__", v))
def test_what_is_wrong_is_said_and_nothing_is_changed(
    pipeline: Pipeline, wrong: Callable[[Pipeline], None], name: str, more: tuple[str, ...]
) -> None:
    wrong(pipeline)
    parent = pipeline.root.parent
    before = tree(pipeline.root)
    result = lamina(*arguments(name, pipeline), "--store", pipeline.root, *more)
    assert result.exit_code == EXPECTED[wrong][name], result.output
    if more:
        assert ("error" in answer(result)) == bool(result.stderr)
    if result.exit_code > 1:
        assert tree(pipeline.root) == before
        assert result.stdout or "error LAM-" in result.stderr
        assert "Traceback" not in result.output
    if wrong is no_such_store:
        assert not list(parent.iterdir()), "a mistyped address must not become a folder"


def test_log_shows_what_stands_before_a_hole(pipeline: Pipeline) -> None:
    hole_in_the_log(pipeline)
    text = lamina("log", "--store", pipeline.root)
    assert len(text.stdout.splitlines()) == 2
    assert "log entry 3 is missing: the next one is 4" in text.stderr
    found = answer(lamina("log", "--store", pipeline.root, "--json"))
    assert [entry["seq"] for entry in found["entries"]] == [1, 2]
    assert found["error"]["code"] == "LAM-3004"
    assert lamina("log", "--store", pipeline.root, "--limit", "2").exit_code == 0
    assert lamina("log", "--store", pipeline.root, "--from", "4").exit_code == 0


class BusyStore(LocalStore):
    """A pipeline that writes its next entry right after somebody has found the end of the log."""

    def get(self, key: str) -> bytes:
        try:
            return super().get(key)
        except NotFound:
            self.put(key, b"{}")
            raise


def test_an_entry_that_is_written_meanwhile_is_no_hole(pipeline: Pipeline) -> None:
    entries, damage = read_entries(Checkpointer(BusyStore(pipeline.root)), 1, None)
    assert [entry.seq for entry, _ in entries] == [1, 2, 3, 4, 5]
    assert damage is None
    assert pipeline.log_entry(6).exists()


ADDRESSES = [
    "ftp://host/x",
    "",
    "s3://",
    "s3://[x",
    "file://host/x",
    "s3://a:b@bucket",
    "az://c?k=v",
]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_wrong_address_is_a_usage_error(pipeline: Pipeline, name: str, address: str) -> None:
    result = lamina(*arguments(name, pipeline), "--store", address, "--json")
    assert result.exit_code == 2
    assert answer(result)["error"]["exit_code"] == 2


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("base", ["../other", "a/../b", "x" * 4096, "a\nb"])
def test_a_wrong_base_is_a_usage_error(pipeline: Pipeline, name: str, base: str) -> None:
    asked = (*arguments(name, pipeline), "--store", str(pipeline.root), "--base", base)
    assert lamina(*asked).exit_code == 2


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_another_base_holds_no_pipeline(pipeline: Pipeline, name: str) -> None:
    before = tree(pipeline.root)
    asked = (*arguments(name, pipeline), "--store", str(pipeline.root), "--base", "typo")
    assert lamina(*asked).exit_code == 3
    assert tree(pipeline.root) == before


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("verify",),
        ("copy", "--to", "elsewhere"),
        ("savepoint", "create", "name"),
    ],
)
@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("no-such-savepoint", 3),
        ("019a3f63-3e60-74c7-8d7a-000000000000", 3),
        ("019A3F63-3E60-74C7-8D7A-E2E483A62529", 2),  # an id, but not as it is written
        ("00000000-0000-4000-8000-000000000000", 2),  # a UUID, but of another version
    ],
)
def test_a_reference_to_nothing(
    pipeline: Pipeline, command: tuple[str, ...], reference: str, code: int
) -> None:
    result = lamina(*command, reference, "--store", pipeline.root, "--json")
    assert result.exit_code == code
    assert answer(result)["error"]["exit_code"] == code
    assert not Path("elsewhere").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("delete", "before-upgrade", "--yes"), 2),
        (("delete", "019a3f63-3e60-74c7-8d7a-000000000000", "--yes"), 3),
        (("savepoint", "drop", "no-such-savepoint"), 3),
        (("savepoint", "create", "before-upgrade"), 5),
        (("savepoint", "create", "latest"), 2),
        (("savepoint", "create", "019a3f63-3e60-74c7-8d7a-e2e483a62529"), 2),
        (("savepoint", "create", " "), 2),
        (("savepoint", "create", "a\x1bb"), 2),
        (("savepoint", "create", "x" * 4096), 2),
        (("gc", "--retain", "0", "--yes"), 2),
        (("gc", "--yes"), 2),
        (("verify", "--sample", "2"), 2),
        (("verify", "--sample", "nan"), 2),
        (("log", "--from", "0"), 2),
        (("show", "--raw", "--json"), 2),
        (("show", "latest", "--manifest", "x"), 2),
        (("copy", "latest", "--to", "ftp://x"), 2),
        (("copy", "latest", "--to", "memory://", "--to-base", ".."), 2),
        (("list", "--option", "region=x"), 2),
        (("list", "--option", "writable=1"), 2),
        (("list", "--option", "url=x"), 2),
        (("list", "--option", "client_options=x", "--option", "client_options.timeout=1s"), 2),
        (("list", "--no-such-option"), 2),
        (("no-such-command",), 2),
    ],
)
def test_a_wrong_argument(pipeline: Pipeline, command: tuple[str, ...], code: int) -> None:
    before = tree(pipeline.root)
    result = lamina(*command, "--store", pipeline.root, "--json")
    assert result.exit_code == code, result.output
    assert answer(result)["error"]["exit_code"] == code
    assert "error LAM-" in result.stderr
    assert tree(pipeline.root) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_store_option(pipeline: Pipeline, name: str) -> None:
    result = lamina(*arguments(name, pipeline))
    assert result.exit_code == 2
    assert "--store" in result.stderr


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, 3),
        (b"", 4),
        (b"{", 4),
        (b'{"version": 3}', 4),
        (b'{"version": 99}', 6),
        (b"[" * 100_000, 4),
        (b"\xff\xfe", 4),
    ],
)
def test_a_file_that_is_no_manifest(tmp_path: Path, content: bytes | None, code: int) -> None:
    file = tmp_path / "manifest.json"
    if content is not None:
        file.write_bytes(content)
    result = lamina("show", "--manifest", file, "--json")
    assert result.exit_code == code
    assert answer(result)["error"]["where"] == str(file)


def test_a_folder_is_no_manifest(tmp_path: Path) -> None:
    assert lamina("show", "--manifest", tmp_path).exit_code == 2


READ_ONLY = {
    "list": 0,
    "show": 0,
    "log": 0,
    "verify": 1,
    "gc": 6,
    "plan": 0,
    "delete": 6,
    "create": 6,
    "savepoints": 0,
    "drop": 6,
}


@pytest.mark.parametrize(("name", "code"), READ_ONLY.items())
def test_a_folder_that_may_not_be_written(template: Pipeline, name: str, code: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: nobody may enter that one
        root = Path(folder) / "pipeline"
        shutil.copytree(template.root, root)
        shutil.rmtree(root / ".tmp", ignore_errors=True)
        Path(folder).chmod(0o755)
        for path in (root, *root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = tree(root)
        asked = arguments(name, Pipeline(root, "", template.ids))
        with without_rights():
            result = lamina(*asked, "--store", root, "--json")
        assert result.exit_code == code, result.output
        if code == 6:
            assert answer(result)["error"]["code"] == "LAM-5002"
        assert tree(root) == before
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)


def test_a_folder_that_may_not_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o000)
        with without_rights():
            result = lamina("list", "--store", Path(folder) / "pipeline")
        Path(folder).chmod(0o700)
        assert result.exit_code == 6
        assert "error LAM-5002" in result.stderr
