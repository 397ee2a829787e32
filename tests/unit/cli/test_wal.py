"""`lamina wal` and `lamina recover` on a healthy home, and on one that a crash has left."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lamina.checkpoint import Checkpointer
from lamina.cli.support.rows import row_shapes, row_texts
from lamina.disk import LocalDisk
from lamina.errors import LaminaError, LogDamaged
from lamina.format.commit import CheckpointRecord
from lamina.format.wal import Kind
from lamina.protocol.history import History
from lamina.recovery import Recovered, RecoveryConfig, RecoveryManager, rehearse
from lamina.store import LocalStore
from lamina.testing import ManualClock
from lamina.wal import DriverLog, SegmentReader, claim_home, read_home
from lamina.wal.standalone import CoreWalWriter, LogSet
from tests.support.checkpoints import cid
from tests.support.command_line import answer, lamina, tree
from tests.support.homes import HomeAndStore, flip, make_home, tear
from tests.support.wal_logs import driver_commit
from tests.support.workspaces import workspace


@pytest.fixture(scope="module")
def template() -> Iterator[HomeAndStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield make_home(Path(folder))


@pytest.fixture
def made(template: HomeAndStore, tmp_path: Path) -> HomeAndStore:
    return template.copy_to(tmp_path)


def offsets_of(made: HomeAndStore, segment: Path, kind: Kind) -> list[int]:
    reader = SegmentReader(LocalDisk(made.home), made.name(segment))
    return [r.offset for r in reader.records(payloads=False) if r.kind is kind]


# list


def test_list_shows_every_segment_and_how_it_ends(made: HomeAndStore) -> None:
    result = lamina("wal", "list", "--home", made.home)
    head, *rows = result.stdout.splitlines()
    assert result.exit_code == 0
    assert head.split() == [
        *("SEGMENT", "CORE", "GENERATION", "P", "RECORDS", "ENTRIES", "EPOCHS", "SIZE", "END")
    ]
    assert [row.split()[:2] for row in rows] == [
        [made.name(made.driver), "driver"],
        [made.name(made.core(0)), "0"],
        [made.name(made.core(1)), "1"],
    ]
    assert all(row.endswith("clean") for row in rows)


def test_list_as_json(made: HomeAndStore) -> None:
    found = answer(lamina("wal", "list", "--json", env={"LAMINA_HOME": str(made.home)}))
    assert found["folder"] == str(made.home)
    assert found["home"] == json.loads((made.home / "home.json").read_bytes())["id"]
    driver, zero, one = found["segments"]
    assert (driver["core"], zero["core"], one["core"]) == (None, 0, 1)
    assert (zero["entries"], zero["epoch_min"], zero["epoch_max"]) == (14, 1, 7)
    assert (zero["generation"], zero["partitions"], zero["first_sequence"]) == (1, 2, 0)
    size = made.core(0).stat().st_size
    clean = {"state": "clean", "offset": size, "torn_bytes": 0, "reason": "", "where": ""}
    assert zero["end"] == clean


def test_list_counts_only_what_stands_before_a_torn_end(made: HomeAndStore) -> None:
    tear(made.core(0))
    segment = answer(lamina("wal", "list", "--home", made.home, "--json"))["segments"][1]
    assert segment["entries"] == 12, "the last RUN is torn"
    assert segment["end"]["state"] == "torn"
    assert segment["end"]["torn_bytes"] == made.core(0).stat().st_size - segment["end"]["offset"]
    text = lamina("wal", "list", "--home", made.home)
    assert text.exit_code == 0
    assert "the file ends inside a record" in text.stdout


def test_an_empty_file_is_a_segment_that_has_just_begun(made: HomeAndStore) -> None:
    made.core(1).write_bytes(b"")
    segment = answer(lamina("wal", "list", "--home", made.home, "--json"))["segments"][2]
    assert segment["end"]["reason"] == "no header yet"
    assert segment["generation"] is None
    assert lamina("wal", "dump", "--home", made.home, made.name(made.core(1))).exit_code == 0


def test_a_home_without_segments(tmp_path: Path) -> None:
    home = tmp_path / "home"
    claim_home(LocalDisk(home), ManualClock()).release()
    before = tree(home)
    assert lamina("wal", "list", "--home", home).stdout == f"no segments in {home}\n"
    assert lamina("wal", "dump", "--home", home).stdout == "no segments\n"
    verified = lamina("wal", "verify", "--home", home)
    assert verified.stdout == "ok: 0 segments, 0 records, 0 entries, 0 B read\n"
    assert tree(home) == before


# dump


def test_dump_prints_a_line_per_record(made: HomeAndStore) -> None:
    result = lamina("wal", "dump", "--home", made.home, made.name(made.driver))
    title, head, *lines, end = result.stdout.splitlines()
    assert "driver, generation 1, P 2, from sequence 0" in title
    assert [line.split()[1] for line in lines] == [
        *("TAKEOVER", "ADOPT", "COMMIT", "COMMIT", "CHECKPOINT"),
        *("COMMIT", "COMMIT", "CHECKPOINT", "COMMIT", "COMMIT"),
    ]
    assert head.split()[0] == "OFFSET"
    assert json.loads(lines[4][lines[4].index("{") :])["id"] == str(made.ids[0])
    assert end.split()[1] == "clean"


def test_dump_without_a_segment_prints_all(made: HomeAndStore) -> None:
    found = answer(lamina("wal", "dump", "--home", made.home, "--json"))
    assert [len(segment["records"]) for segment in found["segments"]] == [10, 13, 12]
    assert "error" not in found


def test_dump_shows_rows_safely_and_only_if_asked(made: HomeAndStore) -> None:
    segment = made.name(made.core(0))
    plain = lamina("wal", "dump", "--home", made.home, segment, "--limit", "1")
    assert "2 rows of key: binary not null, value: binary" in plain.stdout
    assert "customer-1" not in plain.stdout
    shown = lamina("wal", "dump", "--home", made.home, segment, "--limit", "1", "--values")
    assert "key='customer-1', value='total 1'" in shown.stdout
    assert "key=00ff1b5b324a, value=null" in shown.stdout
    assert "\x1b" not in shown.stdout
    found = answer(lamina("wal", "dump", "--home", made.home, segment, "--values", "--json"))
    run = found["segments"][0]["records"][0]
    assert run["rows"] == [[b"customer-1".hex(), b"total 1".hex()], ["00ff1b5b324a", None]]
    assert run["schema"][0] == {"name": "key", "type": "binary", "nullable": False}


def test_dump_names_the_same_checksums_as_commits(made: HomeAndStore) -> None:
    driver, zero, one = answer(lamina("wal", "dump", "--home", made.home, "--json"))["segments"]
    places = {
        (segment["path"], record["offset"]): (record["size_bytes"], record["crc"])
        for segment in (zero, one)
        for record in segment["records"]
    }
    commits = [r["payload"] for r in driver["records"] if r["kind"] == "COMMIT"]
    ranges = [place for commit in commits for place in commit["ranges"]]
    assert len(ranges) == 12
    for place in ranges:
        assert places[place["segment"], place["offset"]] == (place["size"], place["crc"])


def test_dump_from_and_limit(made: HomeAndStore) -> None:
    second, third = offsets_of(made, made.driver, Kind.COMMIT)[1:3]
    asked = ("wal", "dump", "--home", made.home, made.name(made.driver), "--json")
    records = answer(lamina(*asked, "--from", str(second)))["segments"][0]["records"]
    assert (records[0]["offset"], len(records)) == (second, 7)
    found = answer(lamina(*asked, "--from", str(third), "--limit", "1"))["segments"][0]
    assert [record["offset"] for record in found["records"]] == [third]
    assert found["end"] is None, "nobody has looked"
    size = made.driver.stat().st_size
    assert answer(lamina(*asked, "--from", str(size)))["segments"][0]["records"] == []
    assert answer(lamina(*asked, "--from", "0"))["segments"][0]["records"][0]["offset"] == 64


def test_limit_counts_over_all_segments(made: HomeAndStore) -> None:
    found = answer(lamina("wal", "dump", "--home", made.home, "--json", "--limit", "11"))
    assert [len(segment["records"]) for segment in found["segments"]] == [10, 1]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_dump_stops_at_damage_with_what_stands_before_it(
    made: HomeAndStore, more: tuple[str, ...]
) -> None:
    bad, behind = offsets_of(made, made.core(0), Kind.RUN)[2:4]
    flip(made.core(0), bad + 100)
    segment = made.name(made.core(0))
    result = lamina("wal", "dump", "--home", made.home, segment, *more)
    assert result.exit_code == 4
    assert f"byte {bad}" in result.stderr
    if more:
        found = answer(result)
        assert [r["epoch"] for r in found["segments"][0]["records"]] == [1, 1, 2, 2]
        assert found["segments"][0]["end"]["state"] == "damaged"
        assert found["error"]["code"] == "LAM-3005"
    else:
        assert result.stdout.count("BARRIER") == 2
    again = lamina("wal", "dump", "--home", made.home, segment, "--from", str(behind), *more)
    assert again.exit_code == 0, "a record behind the damage can be asked for"
    at_it = lamina("wal", "dump", "--home", made.home, segment, "--from", str(bad), *more)
    assert at_it.exit_code == 4


def test_a_segment_may_be_named_by_its_file(
    made: HomeAndStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.home / "core-0")
    for name in (made.core(0), made.core(0).name, made.name(made.core(0))):
        found = answer(lamina("wal", "verify", "--home", made.home, name, "--json"))
        assert [segment["path"] for segment in found["segments"]] == [made.name(made.core(0))]


# rows


def test_rows_of_any_type_become_json() -> None:
    columns = {
        "whole": pa.array([1, None], pa.int64()),
        "real": pa.array([math.nan, 1.5]),
        "yes": pa.array([True, None]),
        "text": pa.array(["\x1b[2J", "b"]),
        "at": pa.array([1, 2], pa.timestamp("ns", tz="UTC")),
        "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
        "many": pa.array([[1, None], []], pa.list_(pa.int32())),
        "both": pa.array([{"a": b"\x00", "b": 1}, None]),
        "word": pa.array(["x", "y"]).dictionary_encode(),
        "price": pa.array([None, None], pa.decimal128(9, 2)),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "none": pa.nulls(2),
    }
    batch = pa.record_batch(columns)
    rows = json.loads(json.dumps(list(row_shapes(batch)), allow_nan=False))
    first = dict(zip(columns, rows[0], strict=True))
    assert first["at"].startswith("1970-01-01 00:00:00.000000001")
    assert first["real"] == "nan"
    assert first["text"] == "\x1b[2J"
    assert (first["whole"], first["yes"], first["fixed"]) == (1, True, "6162")
    assert (first["many"], first["both"]) == ([1, None], {"a": "00", "b": 1})
    assert (first["word"], first["price"], first["none"]) == ("x", None, None)
    assert all(text.isprintable() for text in row_texts(batch))


# verify


def test_verify_reads_every_byte(made: HomeAndStore) -> None:
    result = lamina("wal", "verify", "--home", made.home)
    assert result.exit_code == 0
    assert result.stdout.startswith("ok: 3 segments, 35 records, 20 entries")
    found = answer(lamina("wal", "verify", "--home", made.home, "--json"))
    sizes = [path.stat().st_size for path in (made.driver, made.core(0), made.core(1))]
    assert found["bytes_read"] == sum(sizes)
    assert found["ok"]
    assert found["problems"] == []


def test_a_torn_end_is_a_note(made: HomeAndStore) -> None:
    tear(made.core(0))
    result = lamina("wal", "verify", "--home", made.home)
    assert result.exit_code == 0
    assert "note" in result.stdout
    assert "ok, 1 note:" in result.stdout
    found = answer(lamina("wal", "verify", "--home", made.home, "--json"))
    assert found["ok"]
    assert [p["severity"] for p in found["problems"]] == ["note"]
    assert found["segments"][1]["torn_bytes"] > 0


def test_verify_finds_every_damaged_place(made: HomeAndStore) -> None:
    runs = offsets_of(made, made.core(0), Kind.RUN)
    flip(made.core(0), runs[1] + 100)  # a payload
    flip(made.core(0), runs[3] + 9)  # the epoch in a header
    flip(made.core(0), runs[5])  # a magic
    result = lamina("wal", "verify", "--home", made.home, "--json")
    assert result.exit_code == 4
    found = answer(result)
    assert [p["offset"] for p in found["problems"]] == [runs[1], runs[3], runs[5]]
    for problem in found["problems"]:
        assert problem["path"] == made.name(made.core(0))
        assert problem["expected"]
        assert problem["expected"] != problem["actual"]
    assert found["segments"][1]["records"] == 10
    assert "DAMAGED, 3 errors" in lamina("wal", "verify", "--home", made.home).stdout


def test_every_flipped_bit_of_a_log_is_found_at_its_record(made: HomeAndStore) -> None:
    """A byte of each field and of the payload, of each record; the place named is the record's."""
    reader = SegmentReader(LocalDisk(made.home), made.name(made.core(1)))
    for record in list(reader.records(payloads=False))[:4]:
        for inside in range(record.offset, record.end, 7):
            flip(made.core(1), inside)
            name = made.name(made.core(1))
            found = answer(lamina("wal", "verify", "--home", made.home, name, "--json"))
            assert [p["offset"] for p in found["problems"]] == [record.offset], inside
            flip(made.core(1), inside)


def test_a_cut_at_a_record_looks_clean_but_a_commit_knows_better(made: HomeAndStore) -> None:
    last = offsets_of(made, made.core(1), Kind.RUN)[-1]
    with made.core(1).open("r+b") as file:
        file.truncate(last)
    alone = lamina("wal", "verify", "--home", made.home, made.name(made.core(1)))
    assert alone.exit_code == 0, "nobody was asked about it"
    result = lamina("wal", "verify", "--home", made.home, "--json")
    assert result.exit_code == 4
    problem = answer(result)["problems"][0]
    assert problem["path"] == made.name(made.driver)
    assert "the COMMIT of epoch 6 names byte" in problem["message"]
    assert problem["actual"] == "no record"


def test_a_segment_that_is_gone_is_missed_if_no_checkpoint_covers_it(made: HomeAndStore) -> None:
    """It was taken for one that was dropped, and verify said ok."""
    gone = made.name(made.core(1))
    made.core(1).unlink()
    result = lamina("wal", "verify", "--home", made.home, "--json")
    assert result.exit_code == 4
    found = answer(result)
    [problem] = found["problems"]
    assert (problem["path"], problem["code"], problem["actual"]) == (gone, "LAM-3005", "no file")
    assert "epochs 5 to 6" in problem["message"]
    assert "lamina recover --dry-run" in problem["advice"]
    assert not found["ok"]
    assert gone in lamina("wal", "verify", "--home", made.home).stdout


def test_a_segment_that_was_dropped_below_a_checkpoint_is_not_missed(tmp_path: Path) -> None:
    """What the newest note of a checkpoint covers may be gone; what comes after it may not."""
    home = claim_home(LocalDisk(tmp_path / "home"), ManualClock())
    driver, logs = DriverLog(home, 1), LogSet(home, 1)
    made = []
    for epoch in (1, 2, 3):
        logs.set_epoch(epoch)
        logs[0].append_put(b"key", b"value")
        logs.sync_all()
        driver.commit(driver_commit(driver, epoch, logs.take_ranges()))
        made.append(tmp_path / "home" / logs[0].segment)
        logs[0].rotate()
    driver.note_checkpoint(CheckpointRecord(cid(2), 2, "a" * 64))
    for dropped in made[:2]:
        dropped.unlink()
        assert lamina("wal", "verify", "--home", tmp_path / "home").exit_code == 0
    made[2].unlink()
    found = answer(lamina("wal", "verify", "--home", tmp_path / "home", "--json"))
    assert ["epoch 3 " in problem["message"] for problem in found["problems"]] == [True]
    for each in (driver, logs):
        each.close()
    home.release()


def test_a_payload_that_makes_no_sense_is_damage(tmp_path: Path) -> None:
    home = claim_home(LocalDisk(tmp_path / "home"), ManualClock())
    with CoreWalWriter(0, home.disk, home=home.identity) as writer:
        writer.append_put(b"a", b"b")
        writer.sync()
        segment = writer.segment
        writer._chain.append(Kind.COMMIT, [b"{}"], epoch=1, first=1, count=0)
        writer._chain.append(Kind.RUN, [b"no arrow"], epoch=1, first=1, count=1)
        writer.append_epoch_barrier()
        writer.sync()
    home.release()
    found = answer(lamina("wal", "verify", "--home", tmp_path / "home", "--json"))
    assert [p["severity"] for p in found["problems"]] == ["error", "error"]
    assert found["segments"][0]["records"] == 4, "the framing is whole"
    run = found["problems"][1]["offset"]
    dumped = lamina("wal", "dump", "--home", tmp_path / "home", segment, "--from", str(run))
    assert dumped.exit_code == 4
    assert "a RUN is not a valid Arrow batch" in dumped.stderr


# repair


def test_repair_says_what_it_would_cut(made: HomeAndStore) -> None:
    tear(made.core(0))
    before = tree(made.home)
    segment = made.name(made.core(0))
    result = lamina("wal", "repair", "--home", made.home, segment, "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("would cut ")
    found = answer(lamina("wal", "repair", "--home", made.home, segment, "--dry-run", "--json"))
    assert found["dry_run"]
    assert found["repair"]["kept"] == f"{segment}.cut-{found['repair']['offset']}"
    assert tree(made.home) == before


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_repair_keeps_what_it_cuts(made: HomeAndStore, more: tuple[str, ...]) -> None:
    tear(made.core(0))
    before = made.core(0).read_bytes()
    segment = made.name(made.core(0))
    result = lamina("wal", "repair", "--home", made.home, segment, "--yes", *more)
    assert result.exit_code == 0
    (kept,) = (made.home / "core-0").glob("*.cut-*")
    assert made.core(0).read_bytes() + kept.read_bytes() == before
    verified = lamina("wal", "verify", "--home", made.home)
    assert (verified.exit_code, "note" in verified.stdout) == (0, False)
    again = lamina("wal", "repair", "--home", made.home, segment, "--yes")
    assert "there is nothing to cut" in again.stdout


def test_damage_is_cut_only_if_asked_for_and_verify_says_what_is_lost(made: HomeAndStore) -> None:
    flip(made.core(0), offsets_of(made, made.core(0), Kind.RUN)[4] + 100)
    segment = made.name(made.core(0))
    refused = lamina("wal", "repair", "--home", made.home, segment, "--yes")
    assert refused.exit_code == 5
    assert "--damage" in refused.stderr
    assert lamina("wal", "repair", "--home", made.home, segment, "--damage", "--yes").exit_code == 0
    found = answer(lamina("wal", "verify", "--home", made.home, "--json"))
    assert [p["message"].partition(" names")[0] for p in found["problems"]] == [
        "the COMMIT of epoch 5",
        "the COMMIT of epoch 6",
    ]
    assert lamina("recover", *at(made), "--dry-run").exit_code == 4


def test_repair_needs_a_yes(made: HomeAndStore) -> None:
    tear(made.core(0))
    before = tree(made.home)
    result = lamina("wal", "repair", "--home", made.home, made.name(made.core(0)))
    assert result.exit_code == 2
    assert "This cuts a file, and nobody is at the terminal" in result.stderr
    assert tree(made.home) == before


# recover


def at(made: HomeAndStore) -> tuple[str | Path, ...]:
    return ("--home", made.home, "--store", made.store)


def test_recover_prints_where_it_lands_and_from_what(made: HomeAndStore) -> None:
    tear(made.core(0))
    result = lamina("recover", *at(made), "--dry-run")
    assert result.exit_code == 0
    for line in (
        "lands on:   epoch 6, ",
        f"checkpoint: {made.ids[1]}, epoch 4: 2 files, 848 B, verified",
        "replay:     epochs 5 to 6: 2 COMMITs, 6 entries, ",
        "watermark:  6000000",
        "next epoch: 7",
        "sinks:      unknown: this command does not open them",
        "source  clicks      6  file=part-6",
        "the file ends inside a record",
    ):
        assert line in result.stdout


def test_recover_as_json(made: HomeAndStore) -> None:
    found = answer(lamina("recover", *at(made), "--dry-run", "--json"))
    assert (found["epoch"], found["head"]["epoch"], found["next_epoch"]) == (6, 6, 7)
    assert found["checkpoint"]["id"] == str(made.ids[1])
    assert [commit["epoch"] for commit in found["replay"]] == [5, 6]
    assert (found["entries_replayed"], found["entries_dropped"]) == (6, 2)
    assert found["source_offsets"]["clicks"]["offsets"] == {"file": "part-6"}
    assert found["source_watermarks"] == {"clicks": 6_000_000}
    assert (found["verified"], found["sinks_known"]) == (True, False)
    assert found["skipped"] == found["given_up"] == found["left_aside"] == []


def test_recover_passes_over_a_damaged_checkpoint(made: HomeAndStore) -> None:
    flip(made.artifact(1), 20)
    result = lamina("recover", *at(made), "--dry-run")
    assert result.exit_code == 1
    assert f"checkpoint: {made.ids[0]}, epoch 2" in result.stdout
    found = answer(lamina("recover", *at(made), "--dry-run", "--json"))
    assert [skipped["id"] for skipped in found["skipped"]] == [str(made.ids[1])]
    assert "SHA-256" in found["skipped"][0]["why"]
    assert [commit["epoch"] for commit in found["replay"]] == [3, 4, 5, 6]
    believed = lamina("recover", *at(made), "--dry-run", "--no-verify")
    assert believed.exit_code == 0, "nobody has read the file"
    assert f"checkpoint: {made.ids[1]}, epoch 4: 2 files, 848 B, not verified" in believed.stdout


def test_a_damaged_record_that_would_be_replayed_is_found(made: HomeAndStore) -> None:
    flip(made.core(1), offsets_of(made, made.core(1), Kind.RUN)[-2] + 100)
    assert lamina("recover", *at(made), "--dry-run").exit_code == 4
    assert lamina("recover", *at(made), "--dry-run", "--no-verify").exit_code == 0


def test_what_cannot_be_rebuilt_needs_a_flag(made: HomeAndStore) -> None:
    """With both checkpoints damaged the whole log is needed; then a part of that is gone, too."""
    for index in range(2):
        flip(made.artifact(index), 20)
    from_the_log_alone = lamina("recover", *at(made), "--dry-run")
    assert from_the_log_alone.exit_code == 1
    assert "checkpoint: none" in from_the_log_alone.stdout
    made.core(1).unlink()
    result = lamina("recover", *at(made), "--dry-run", "--json")
    assert result.exit_code == 5
    assert answer(result)["error"]["code"] == "LAM-4002"
    assert "--lose-after" in result.stderr


def test_lose_after_says_what_is_given_up(made: HomeAndStore) -> None:
    found = answer(lamina("recover", *at(made), "--dry-run", "--lose-after", "5", "--json"))
    assert (found["epoch"], [point["epoch"] for point in found["given_up"]]) == (5, [6])
    text = lamina("recover", *at(made), "--dry-run", "--lose-after", "3")
    assert "given up:   3 epochs" in text.stdout
    assert f"checkpoint: {made.ids[0]}" in text.stdout


def test_start_fresh_gives_up_everything(made: HomeAndStore) -> None:
    found = answer(lamina("recover", *at(made), "--dry-run", "--start-fresh", "--json"))
    assert (found["epoch"], found["head"], found["checkpoint"]) == (0, None, None)
    assert found["next_epoch"] == 7
    assert (
        "lands on:   nothing" in lamina("recover", *at(made), "--dry-run", "--start-fresh").stdout
    )


def test_a_new_home_can_take_over(made: HomeAndStore, tmp_path: Path) -> None:
    new = tmp_path / "new"
    asked = ("recover", "--home", new, "--store", made.store, "--dry-run")
    refused = lamina(*asked)
    assert refused.exit_code == 3
    assert "--take-over-home" in refused.stderr
    found = answer(lamina(*asked, "--take-over-home", "--json"))
    assert (found["home"], found["epoch"], found["replay"]) == (None, 4, [])
    owner = json.loads((made.home / "home.json").read_bytes())["id"]
    assert found["takes_over_from"] == owner
    text = lamina(*asked, "--take-over-home").stdout
    assert "a start would make it" in text
    assert f"from the home {owner}" in text
    assert not new.exists()


def test_only_a_dry_run_exists(made: HomeAndStore) -> None:
    before = tree(made.home) | tree(made.store)
    result = lamina("recover", *at(made))
    assert result.exit_code == 2
    assert "a pipeline recovers by being started" in result.stderr
    assert tree(made.home) | tree(made.store) == before


class Late(Checkpointer):
    """Its first look at the log is from before the second checkpoint."""

    first: History | None = None

    def history(self) -> History:
        first, self.first = self.first, None
        return first or super().history()


def test_a_checkpoint_that_is_made_meanwhile_is_no_damage(
    made: HomeAndStore, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(made.store, old)
    for entry in sorted((old / "log").iterdir())[2:]:
        entry.unlink()
    (old / "_latest").unlink()
    late = Late(LocalStore(made.store))
    late.first = Checkpointer(LocalStore(old)).history()
    home = read_home(LocalDisk(made.home))
    assert rehearse(home, late).state.epoch == 6
    always = Checkpointer(LocalStore(old))
    with pytest.raises(LogDamaged):
        rehearse(home, always)


FLAGS: dict[str, RecoveryConfig] = {
    "": RecoveryConfig(),
    "--lose-after 5": RecoveryConfig(lose_after=5),
    "--lose-after 3": RecoveryConfig(lose_after=3),
    "--start-fresh": RecoveryConfig(start_fresh=True),
    "--take-over-home": RecoveryConfig(take_over_home=True),
}


def start(manager: RecoveryManager) -> Recovered | LaminaError:
    try:
        return manager.run()
    except LaminaError as error:
        return error


@pytest.mark.parametrize("new_home", [False, True])
@pytest.mark.parametrize("damaged", [(), (1,), (0, 1)])
@pytest.mark.parametrize("flags", FLAGS)
def test_a_start_does_what_its_dry_run_said(
    made: HomeAndStore, tmp_path: Path, flags: str, damaged: tuple[int, ...], new_home: bool
) -> None:
    tear(made.core(0))
    for index in damaged:
        flip(made.artifact(index), 20)
    home = tmp_path / "new" if new_home else made.home
    asked = ("--home", home, "--store", made.store, "--dry-run", "--json", *flags.split())
    said = lamina("recover", *asked)
    manager = RecoveryManager(
        workspace(home, tmp_path / "scratch"),
        Checkpointer(LocalStore(made.store), clock=ManualClock()),
        config=FLAGS[flags],
    )
    recovered = start(manager)
    if isinstance(recovered, LaminaError):
        assert said.exit_code == (3 if new_home and "--take" not in flags else 5), said.output
        assert said.exit_code == 3 or answer(said)["error"]["message"] == recovered.message
        return
    recovered.close()
    state, report, found = recovered.state, recovered.state.report, answer(said)
    assert said.exit_code == (1 if report.skipped else 0)
    assert found["epoch"] == state.epoch
    assert found["next_epoch"] == state.next_epoch
    assert (found["checkpoint"] or {}).get("id") == report.checkpoint
    assert [each["id"] for each in found["skipped"]] == [str(each.id) for each in report.skipped]
    assert [each["epoch"] for each in found["replay"]] == [c.epoch for c in state.replayed]
    assert [each["epoch"] for each in found["given_up"]] == [p.epoch for p in report.given_up]
    assert found["entries_dropped"] == report.entries_dropped
    assert found["torn_bytes"] == report.torn_bytes
    assert found["watermark"] == state.watermark
