"""`lamina inspect` and `lamina diff`: every form of answer, every way to ask wrongly."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import lamina as library
from lamina.errors import RunDamaged
from lamina.inspect import OperatorDiff, View
from tests.support.command_line import answer, lamina, make_pipeline, tree, without_rights
from tests.support.homes import make_home
from tests.support.shop import Shop, make_shop, rows


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return make_shop(tmp_path_factory.mktemp("cli") / "shop")


def found(shop: Shop, *arguments: str) -> Any:
    result = lamina("inspect", shop.folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return answer(result)


def test_json_has_the_state_and_which_one_it_is(shop: Shop) -> None:
    document = found(shop, "totals", "--at", "2", "--key", "customer=bob")
    assert document["at"]["epoch"] == 2
    assert document["at"]["replayed"] == [2]
    assert document["operator"]["partitions"] == 2
    assert document["rows"] == [
        {"customer": "bob", "day": "2025-11-01", "orders": 5, "amount": "47.50"}
    ]
    assert found(shop, "totals", "--limit", "0")["rows"] == []
    assert len(found(shop, "totals", "--limit", "2")["rows"]) == 2
    assert found(shop, "returns")["rows"] == []
    assert found(shop, "state", "--key", "key=0x0001")["rows"] == [
        {"key": "0001", "value": b"raw".hex()}
    ]


def test_counts_are_exact_and_only_on_request(shop: Shop) -> None:
    assert found(shop, "totals", "--count")["operator"]["keys"] == 3
    counted = found(shop, "--count", "--at", "head")["operators"]
    assert {each["name"]: each["keys"] for each in counted} == {
        "returns": 0,
        "state": 2,
        "totals": 4,
    }
    listed = found(shop)["operators"]
    assert [each["keys"] for each in listed] == [None, None, None]
    assert lamina("inspect", shop.folder, "totals", "--count").output == "3 keys\n"


def test_csv_is_csv(shop: Shop) -> None:
    text = lamina("inspect", shop.folder, "totals", "--at", "monday", "--csv").stdout
    read = list(csv.DictReader(io.StringIO(text)))
    assert {row["customer"]: row["orders"] for row in read} == {"ada": "1", "bob": "2", "cleo": "3"}
    text = lamina("inspect", shop.folder, "state", "--csv").stdout
    assert sorted(text.splitlines()) == sorted(
        ['"key","value"', f'"{b"cursor".hex()}","{b"part-1".hex()}"', '"0001","726177"']
    )


def test_nested_values_and_nulls_in_every_form(tmp_path: Path) -> None:
    value = pa.schema([("tags", pa.list_(pa.string())), ("more", pa.struct([("n", pa.float64())]))])
    key = pa.schema([("k", pa.string())])
    given = {"k": ['say "hi"', None], "tags": [["a", None], None], "more": [{"n": None}, None]}
    with library.open(tmp_path / "nested") as store:
        store.table("t", key, value).write(pa.table(given, pa.schema([*key, *value])))
        store.commit()
    ask = ("inspect", tmp_path / "nested", "t", "--at", "head")
    rows_ = answer(lamina(*ask, "--json"))["rows"]
    assert {"k": 'say "hi"', "tags": ["a", None], "more": {"n": None}} in rows_
    read = list(csv.reader(io.StringIO(lamina(*ask, "--csv").stdout)))
    assert ['say "hi"', '["a", null]', '{"n": null}'] in read
    assert ["", "", ""] in read
    assert 'say "hi"  ["a", null]  {"n": null}' in lamina(*ask).stdout
    assert len(answer(lamina(*ask, "--key", "k", "--json"))["rows"]) == 1  # null
    assert lamina(*ask, "--parquet", tmp_path / "t.parquet").exit_code == 0
    assert parquet.read_table(tmp_path / "t.parquet").num_rows == 2


def test_parquet_is_a_new_file_or_none(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "totals.parquet"
    ask = ("inspect", shop.folder, "totals", "--at", "head", "--parquet")
    assert lamina(*ask, file).output == f"wrote 4 rows to {file}\n"
    assert parquet.read_table(file).schema.names == ["customer", "day", "orders", "amount"]
    before = file.read_bytes()
    again = lamina(*ask, file)
    assert (again.exit_code, file.read_bytes()) == (5, before)
    nowhere = lamina(*ask, tmp_path / "no" / "folder.parquet")
    assert nowhere.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["totals.parquet"]


def test_a_table_shows_twenty_rows_and_says_how_many_more(tmp_path: Path) -> None:
    with library.open(tmp_path / "big") as store:
        for key in range(50):
            store.put(b"%02d" % key, b"\x1b[2J" if key else b"x" * 5_000)
        store.commit()
    lines = lamina("inspect", tmp_path / "big", "state", "--at", "head").stdout.splitlines()
    assert len(lines) == 1 + 1 + 20 + 1
    assert lines[-1] == "... 30 more"
    all_lines = lamina("inspect", tmp_path / "big", "state", "--at", "head", "--limit", "99").stdout
    assert "0x1b5b324a" in all_lines
    assert "... (5000 characters)" in all_lines


def test_diff_ends_with_0_or_1_and_limits_its_rows(shop: Shop) -> None:
    differ = lamina("diff", shop.folder, "monday", "head", "--limit", "1")
    assert differ.exit_code == 1
    assert "... 3 more" in differ.stdout
    assert lamina("diff", shop.folder, "monday", "head", "returns").exit_code == 0
    assert lamina("diff", shop.folder, "1", "1").exit_code == 0
    none = lamina("diff", shop.folder, "1", "3", "--limit", "0")
    assert none.exit_code == 1
    assert "cleo" not in none.stdout


def test_diff_as_json_has_counts_first_and_then_rows(shop: Shop) -> None:
    result = lamina("diff", shop.folder, "monday", "latest", "totals", "--json")
    document = answer(result)
    assert result.exit_code == 1
    assert list(document)[-1] == "rows"
    assert document["equal"] is False
    assert document["operators"] == [
        {"name": "totals", "added": 1, "removed": 1, "changed": 1, "same": 1}
    ]
    rows_ = {row["key"]["customer"]: row for row in document["rows"]}
    assert rows_["cleo"]["new"] is None
    assert rows_["dora"]["old"] is None
    assert (rows_["bob"]["old"]["orders"], rows_["bob"]["new"]["orders"]) == (2, 5)


def test_a_store_and_its_home_may_be_named_apart(shop: Shop) -> None:
    head = ("inspect", shop.store, "totals", "--at", "head", "--count")
    assert lamina(*head).exit_code == 3
    assert lamina(*head, "--home", shop.home).output == "4 keys\n"
    assert lamina(*head, env={"LAMINA_HOME": str(shop.home)}).output == "4 keys\n"
    based = lamina("inspect", shop.folder, "totals", "--base", "checkpoints", "--count")
    assert based.output == "3 keys\n"


def test_a_fork_is_compared_with_its_origin(tmp_path: Path) -> None:
    shop, fork = make_shop(tmp_path / "shop"), tmp_path / "fork"
    places = ("--store", shop.store, "--to-store", fork, "--at", "monday")
    assert lamina("fork", "a.sql", "b.sql", *places).exit_code == 0
    asked = ("diff", shop.folder)
    assert lamina(*asked, "monday", "latest", "--with", fork).exit_code == 0
    differ = answer(lamina(*asked, "latest", "latest", "--with", fork, "--json"))
    assert (differ["a"]["epoch"], differ["b"]["epoch"], differ["equal"]) == (3, 1, False)
    assert lamina(*asked, "3", "3", "--with", fork).exit_code == 3
    assert lamina(*asked, "3", "1", "--with-home", shop.home).exit_code == 2


def test_looking_needs_no_right_to_write_and_changes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    shop = make_shop(tmp_path / "shop")
    before = tree(shop.folder)
    with without_rights():
        assert lamina("inspect", shop.store, "totals", "--json").exit_code == 0
    assert lamina("diff", shop.folder, "1", "head").exit_code == 1
    assert tree(shop.folder) == before


def test_state_without_keys_is_named_so(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path / "pipeline")
    document = answer(lamina("inspect", pipeline.root, "--json"))
    assert (document["operators"], document["not_keyed"]) == ([], ["counter", "totals"])
    asked = lamina("inspect", pipeline.root, "totals")
    assert asked.exit_code == 2
    assert "not keyed state" in asked.stderr
    differ = lamina("diff", pipeline.root, "10", "30")
    assert differ.exit_code == 0
    assert "totals: not keyed state, not compared" in differ.stdout
    assert lamina("diff", pipeline.root, "10", "30", "totals").exit_code == 2


def test_runs_of_a_log_without_keys_are_named_so(tmp_path: Path) -> None:
    made = make_home(tmp_path)
    result = lamina("inspect", made.store, "--home", made.home, "--at", "head", "--json")
    assert result.exit_code == 0, result.output
    assert answer(result)["operators"] == []
    assert answer(result)["not_keyed"]


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("inspect nowhere", 3, "no such store"),
        ("inspect shop/home", 3, "no commit log"),
        ("inspect shop --at 99", 3, "epoch 99 cannot be reached"),
        ("inspect shop --at tuesday", 3, "tuesday"),
        ("inspect shop --home nowhere --at 2", 3, "no home"),
        ("inspect shop --home shop/home.txt --at 2", 3, "no home"),
        ("inspect shop total", 3, "state, totals"),
        ("inspect shop totals --key region=eu", 2, "key columns: customer, day"),
        ("inspect shop totals --key orders=1", 2, "a value column"),
        ("inspect shop totals --key day=today", 2, "date32"),
        ("inspect shop totals --key =1", 2, "COLUMN=VALUE"),
        ("inspect shop totals --key day=1 --key day=2", 2, "twice"),
        ("inspect shop --key day=2025-11-01", 2, "need a STREAM"),
        ("inspect shop --csv", 2, "need a STREAM"),
        ("inspect shop totals --csv --json", 2, "exclude each other"),
        ("inspect shop totals --csv --count", 2, "exclude each other"),
        ("inspect shop totals --limit -1", 2, "-1"),
        ("state", 2, "STORE"),
        ("state shop totals --at 2 --as-of 2025-11-01", 2, "--at excludes --as-of"),
        ("state shop totals --key day=2025-11-01 --where day=1", 2, "--where excludes --key"),
        ("state shop --where day=1", 2, "need a STREAM"),
        ("state shop totals --as-of yesterday", 2, "not a time in ISO 8601"),
        ("state shop totals --as-of 2025-10-01", 3, "all checkpoints are younger"),
        ("state shop totals --where orders+1=2", 2, "is not a column of this state"),
        ("state nothing.sql", 3, "there is no such pipeline file"),
        ("diff shop 1", 2, "'B'"),
        ("diff shop 1 99", 3, "epoch 99"),
        ("diff shop 1 3 total", 3, "state, totals"),
    ],
)
def test_what_is_asked_wrongly_is_said(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, line: str, code: int, says: str
) -> None:
    monkeypatch.chdir(shop.folder.parent)
    result = lamina(*line.split())
    assert (result.exit_code, says in result.stderr) == (code, True), result.stderr
    if "--json" not in line:
        assert answer(lamina(*line.split(), "--json"))["error"]["exit_code"] == code


def damaged(tmp_path: Path) -> tuple[Shop, Path]:
    shop = make_shop(tmp_path / "shop")
    with library.open(shop.folder) as store:
        store.table("totals").write(rows(**{f"c{i}": 1 for i in range(20_000)}))
        store.commit()
        store.checkpoint()
    return shop, next(shop.store.glob("*/operators/totals/*"))


def test_a_damaged_or_missing_run_ends_with_4(tmp_path: Path) -> None:
    shop, run = damaged(tmp_path)
    data = bytearray(run.read_bytes())
    data[5_000] ^= 1
    run.write_bytes(data)
    for line in (("inspect", shop.folder, "totals"), ("diff", shop.folder, "monday", "latest")):
        result = lamina(*line, "--json")
        assert result.exit_code == 4
        assert answer(result)["error"]["code"] == "LAM-3002"
    assert lamina("inspect", shop.folder).exit_code == 0  # which operators: no run is read
    run.unlink()
    assert lamina("inspect", shop.folder, "totals", "--csv").exit_code == 4


def test_json_that_began_before_damage_was_met_is_still_one_document(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(real: Any) -> Any:
        def batches(*arguments: Any, **named: Any) -> Any:
            yield from real(*arguments, **named)
            raise RunDamaged("block 7", where="a file")

        return batches

    monkeypatch.setattr(View, "scan", fail(View.scan))
    monkeypatch.setattr(OperatorDiff, "batches", fail(OperatorDiff.batches))
    for line in (("inspect", shop.folder, "totals"), ("diff", shop.folder, "1", "3", "totals")):
        result = lamina(*line, "--json")
        document = json.loads(result.stdout)
        assert result.exit_code == 4
        assert len(document["rows"]) == 3
        assert document["error"]["code"] == "LAM-3006"


def test_as_of_a_time_it_is_the_newest_checkpoint_begun_by_then(shop: Shop) -> None:
    for time, epoch in (("2025-11-01T12:27:40", 1), ("2025-11-01T12:28:39.999+00:00", 1)):
        assert found(shop, "totals", "--as-of", time)["at"]["epoch"] == epoch, time
    assert found(shop, "totals", "--as-of", "2025-11-01T13:29:00+01:00")["at"]["epoch"] == 3


def test_inspect_is_the_name_that_state_had(shop: Shop) -> None:
    now, before = (lamina(name, shop.folder, "totals") for name in ("state", "inspect"))
    assert (now.exit_code, now.stdout) == (0, before.stdout)
    assert "inspect" not in lamina("--help").stdout
