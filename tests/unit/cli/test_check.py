"""`lamina check --no-spark`: what the text of a pipeline says, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina import check
from lamina.errors import UsageError
from tests.support.command_line import answer, lamina, tree

SQL = """CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING json OPTIONS (path 'data', locale '${TOKEN}') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM large AS SELECT * FROM trades WHERE volume > 100;
CREATE STREAM vwap AS
  SELECT symbol, TUMBLE(ts, INTERVAL 1 MINUTE) AS minute, sum(price * volume) AS turnover
  FROM large GROUP BY 1, minute EMIT ON WINDOW CLOSE;
CREATE STREAM everything AS SELECT count(*) AS n FROM trades EMIT ON UPDATE;
CREATE SINK a FROM vwap USING parquet OPTIONS (path 'out/a');
CREATE SINK b FROM everything USING parquet OPTIONS (path 'out/b');
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKEN", "do not show this")
    file = tmp_path / "trades.sql"
    file.write_text(SQL)
    return file


def test_the_plan_names_everything_in_the_order_it_runs(pipeline: Path) -> None:
    plan = answer(lamina("check", pipeline, "--no-spark", "--json"))
    assert [each["name"] for each in plan["streams"]] == ["large", "vwap", "everything"]
    large, vwap, everything = plan["streams"]
    assert (large["kind"], large["reads"], large["emit"]) == (
        "stateless",
        "trades",
        "every row, at once",
    )
    assert vwap["keys"] == ["symbol", "TUMBLE(ts, INTERVAL 1 MINUTE)"]
    assert vwap["window"] == "TUMBLE(ts, INTERVAL 1 MINUTE)"
    assert vwap["emit"] == "on window close"
    assert (everything["kind"], everything["keys"]) == ("aggregate", [])
    assert plan["sources"][0]["watermark"] == {"column": "ts", "delay_us": 5_000_000}
    assert plan["sources"][0]["missing"]
    assert all(sink["delivery"].startswith("exactly once") for sink in plan["sinks"])
    assert "after the last checkpoint" in plan["lost"]["machine"]


def test_with_a_home_in_an_object_store_nothing_committed_is_lost(pipeline: Path) -> None:
    plan = check(pipeline, home="s3://bucket/home", with_spark=False)
    assert plan["mode"].startswith("remote: ")
    assert [said.partition(":")[0] for said in plan["lost"].values()] == ["nothing"] * 3
    result = lamina("check", pipeline, "--no-spark", "--home", "s3://bucket/home")
    assert "lost with the machine:  nothing:" in result.stdout


def test_a_home_in_an_object_store_has_its_price(pipeline: Path) -> None:
    """Two streams keep state, in two partitions each; a checkpoint each ten epochs."""
    remote = ("--no-spark", "--home", "s3://bucket/home", "--interval", "20")
    requests = answer(lamina("check", pipeline, *remote, "--json"))["requests"]
    epochs = 30 * 24 * 3600 / 20
    assert requests["epoch_seconds"] == 20
    assert requests["puts_per_month"] == epochs + epochs / 10 * (10 + 2 * 2)
    given = ("--checkpoint-epochs", "5", "--partitions", "8")
    more = answer(lamina("check", pipeline, *remote, *given, "--json"))["requests"]
    assert more["puts_per_month"] == epochs + epochs / 5 * (10 + 2 * 8)
    assert requests["store_class"] == "S3 Standard"
    said = lamina("check", pipeline, *remote).stdout
    assert f"about {requests['usd_per_month']:.2f} USD (S3 Standard" in said
    usual = check(pipeline, home="gs://bucket/home", with_spark=False)["requests"]
    assert (usual["epoch_seconds"], usual["store_class"]) == (10, "GCS Standard")
    assert check(pipeline, with_spark=False)["requests"] is None
    assert "requests:" not in lamina("check", pipeline, "--no-spark").stdout


@pytest.mark.parametrize("interval", ["0", "-1", "soon"])
def test_an_interval_that_is_none_is_refused(pipeline: Path, interval: str) -> None:
    refused = lamina("check", pipeline, "--no-spark", "--interval", interval)
    assert refused.exit_code == 2
    with pytest.raises(UsageError):
        check(pipeline, home="s3://b/h", interval_s=0, with_spark=False)


def test_the_text_says_the_same_and_no_secret(pipeline: Path) -> None:
    before = tree(pipeline.parent)
    result = lamina("check", pipeline, "--no-spark")
    assert result.exit_code == 0
    for text in (
        "source trades: json (path 'data', locale '${TOKEN}')",
        "  note       its path does not exist yet",
        "stream large: stateless, reads trades",
        "  keys       none: one group",
        "  kept       for ever: it grows with the number of keys",
        "  rows       a later row replaces an earlier one with the same key",
        "lost with the machine:  every epoch after the last checkpoint",
        "only Spark can tell:",
    ):
        assert text in result.stdout
    assert "do not show this" not in result.output
    assert tree(pipeline.parent) == before


def test_a_tree_says_what_reads_what_and_which_steps_are_jobs(tmp_path: Path) -> None:
    file = tmp_path / "p.sql"
    file.write_text(
        "CREATE SOURCE t (k STRING, a BIGINT, ts TIMESTAMP) USING json OPTIONS (path 'in')"
        " WATERMARK ts DELAY OF INTERVAL 5 SECONDS;\n"
        "CREATE STREAM s AS WITH p AS (SELECT k, a FROM t UNION ALL SELECT k, 0 FROM t)"
        " SELECT k, sum(a) AS a FROM p GROUP BY k EMIT ON UPDATE;\n"
        "CREATE STREAM d AS SELECT DISTINCT k FROM t;\n"
        "CREATE STREAM n AS SELECT k, a FROM t"
        " QUALIFY row_number() OVER (PARTITION BY k ORDER BY a) = 1 EMIT ON UPDATE;\n"
        "CREATE STREAM r AS SELECT k FROM s;\n"
        "CREATE SINK o FROM s USING console;\nCREATE SINK o2 FROM s USING console;\n"
        "CREATE SINK u FROM d USING console;\nCREATE SINK v FROM n USING console;\n"
        "CREATE SINK w FROM r USING console;\n"
    )
    said = lamina("check", file, "--no-spark").stdout
    assert (
        """how rows flow, in every epoch
  o, o2
  └─ s: aggregate by k; a job, with state
     └─ s.p: row by row, inside of what reads it
        ├─ s.p.1: row by row, inside of what reads it
        │  └─ source t
        └─ s.p.2: row by row, inside of what reads it
           └─ source t
  u
  └─ d: distinct rows; a job, with state
     └─ source t
  v
  └─ n: first rows by k; a job, with state
     └─ source t
  w
  └─ r: row by row; a job
     └─ s: as above
"""
        in said
    )


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("FROM vwap USING", "FROM vwop USING", "8:13", "Did you mean 'vwap'?"),
        ("USING parquet OPTIONS (path 'out/a')", "USING mongodb", "8:13", "Known formats: parquet"),
        ("USING parquet OPTIONS (path 'out/a')", "USING parquet", "8:13", "has no path"),
        ("EMIT ON UPDATE", "EMIT ON WINDOW CLOSE", "7:29", "no row would ever come out"),
        ("${TOKEN}", "${NO_SUCH_TOKEN}", "2:", "the environment variable NO_SUCH_TOKEN is not set"),
    ],
)
def test_what_would_not_work_is_refused_with_place_and_advice(
    pipeline: Path, old: str, new: str, place: str, message: str
) -> None:
    pipeline.write_text(SQL.replace(old, new, 1))
    result = lamina("check", pipeline, "--no-spark")
    assert result.exit_code == 2
    assert f"{pipeline}:{place}" in result.stderr
    assert message in result.stderr


JOINED = """CREATE SOURCE orders (id BIGINT, total DECIMAL(9,2), ts TIMESTAMP) USING json
  OPTIONS (path 'orders') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE SOURCE payments (order_id BIGINT, amount DECIMAL(9,2), ts TIMESTAMP) USING json
  OPTIONS (path 'payments') WATERMARK ts DELAY OF INTERVAL 5 SECONDS;
CREATE STREAM paid AS SELECT o.id, p.amount FROM orders o LEFT JOIN payments p
  ON o.id = p.order_id {bounds};
CREATE SINK out FROM paid USING console;
"""
BOUNDS = "AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR"


def join_said(folder: Path, bounds: str) -> str:
    """What is said of the join of a pipeline."""
    file = folder / "p.sql"
    file.write_text(JOINED.format(bounds=bounds))
    result = lamina("check", file, "--no-spark")
    assert result.exit_code == 0, result.output
    (part,) = (each for each in result.stdout.split("\n\n") if each.startswith("stream paid.join"))
    return part


def test_the_join_of_the_page_is_explained_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert f"{JOINED.format(bounds=BOUNDS).partition('CREATE SINK')[0]}```" in page
    assert f"{join_said(tmp_path, BOUNDS)}\n```" in page


def test_a_ttl_of_a_join_is_said_to_change_the_result(tmp_path: Path) -> None:
    said = join_said(tmp_path, "STATE TTL INTERVAL 2 DAYS")
    wanted = "STATE TTL changes the result: rows more than 172800 s apart are no pair"
    assert wanted in said
    assert "TTL" not in join_said(tmp_path, BOUNDS)
    asof = JOINED.replace(
        "LEFT JOIN payments p", "ASOF JOIN payments p MATCH_CONDITION (o.ts >= p.ts)"
    )
    (tmp_path / "a.sql").write_text(asof.format(bounds="STATE TTL INTERVAL 1 DAY"))
    shown = lamina("check", tmp_path / "a.sql", "--no-spark").stdout
    assert "the last version of each key; STATE TTL changes the result: rows more than" in shown


def test_a_join_over_changes_says_what_it_keeps_and_emits(tmp_path: Path) -> None:
    file = tmp_path / "joined.sql"
    file.write_text(
        """CREATE SOURCE t (k STRING, a BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM sums AS SELECT k, sum(a) AS s FROM t GROUP BY k EMIT CHANGES;
CREATE STREAM both AS SELECT x.k, x.s, y.n FROM sums x
  LEFT JOIN (SELECT k, count(*) AS n FROM t GROUP BY k) y ON x.k = y.k;
CREATE SINK a FROM both USING console;
"""
    )
    streams = answer(lamina("check", file, "--no-spark", "--json"))["streams"]
    assert {each["name"]: (each["emit"], each["over_changes"]) for each in streams} == {
        "sums": ("changes", False),
        "both.y": ("changes", False),
        "both.join": ("changes", True),
        "both": ("changes", True),
    }
    text = lamina("check", file, "--no-spark").output
    assert "  kept       until rows are taken back: as many as both sides have" in text
    assert "  over       changes: a row that is taken back takes back what came out of it" in text


def test_a_temporal_join_over_changes_says_what_it_keeps_and_emits(tmp_path: Path) -> None:
    file = tmp_path / "joined.sql"
    file.write_text(
        """CREATE SOURCE t (k STRING, a BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM sums AS SELECT k, sum(a) AS s FROM t GROUP BY k EMIT CHANGES;
CREATE STREAM both AS SELECT t.k, x.s FROM t
  LEFT JOIN sums FOR SYSTEM_TIME AS OF PROCTIME() AS x ON x.k = t.k;
CREATE SINK a FROM both USING console;
"""
    )
    streams = answer(lamina("check", file, "--no-spark", "--json"))["streams"]
    assert {each["name"]: (each["kind"], each["emit"]) for each in streams} == {
        "sums": ("aggregate", "changes"),
        "both.join": ("temporal left join", "each row, at once, with the rows that sums has now"),
        "both": ("stateless", "every row, at once"),
    }
    text = lamina("check", file, "--no-spark").output
    assert "  kept       of the right side, until rows are taken back; nothing of the left" in text
    assert "  over       changes of the right side: what has come out is not taken back" in text


def test_changes_are_followed_from_stream_to_stream(tmp_path: Path) -> None:
    file = tmp_path / "changes.sql"
    file.write_text(
        """CREATE SOURCE t (k STRING, a BIGINT) USING json OPTIONS (path 'in');
CREATE STREAM sums AS SELECT k, sum(a) AS s FROM t GROUP BY k EMIT CHANGES;
CREATE STREAM few AS SELECT k, s FROM Sums WHERE s < 10;
CREATE STREAM values AS SELECT DISTINCT s FROM few;
CREATE STREAM total AS SELECT count(*) AS n FROM values EMIT ON UPDATE;
CREATE SINK a FROM few USING console;
CREATE SINK b FROM total USING console;
"""
    )
    streams = answer(lamina("check", file, "--no-spark", "--json"))["streams"]
    assert [(each["emit"], each["over_changes"]) for each in streams] == [
        ("changes", False),
        ("changes", True),
        ("changes", True),
        ("on update", True),
    ]
    text = lamina("check", file, "--no-spark").output
    assert "  emits      changes: +I new, -U and +U replaced, -D gone" in text
    assert text.count("  over       changes: rows may be taken back") == 2
    assert "  rows       a row replaces the one with the same key, or takes it away" in text
