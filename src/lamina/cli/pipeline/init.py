"""`lamina init`: an example project that runs."""

from __future__ import annotations

from pathlib import Path

import click

from lamina.cli.support.screen import Screen, json_option
from lamina.errors import AlreadyExists, UsageError
from lamina.os_errors import typed_errors

PIPELINE = """\
-- Trades, made up, the same every time: one every 50 ms of event time.
CREATE SOURCE trades (symbol STRING, price DECIMAL(12,2), volume BIGINT, ts TIMESTAMP)
  USING trades OPTIONS (rows '50000', symbols '20')
  WATERMARK ts DELAY OF INTERVAL 5 SECONDS;

-- Per symbol and minute; a row comes out once, when its minute is over.
CREATE STREAM vwap AS
  SELECT symbol, window.start AS minute, sum(price * volume) / sum(volume) AS vwap,
         sum(volume) AS volume, count(*) AS trades
  FROM trades GROUP BY symbol, window(ts, '1 minute') EMIT ON WINDOW CLOSE;

-- To files, exactly once; and some rows of every epoch to the terminal.
CREATE SINK vwap_out FROM vwap USING parquet OPTIONS (path 'out/vwap');
CREATE SINK vwap_shown FROM vwap USING console OPTIONS (rows '5');
"""

README = """\
# A Lamina pipeline

`pipeline.sql` reads trades, computes their volume-weighted average price per symbol and minute,
writes it to `out/vwap` as Parquet files, one folder per epoch, and shows some rows of each epoch.

    pip install 'lamina[spark,java]'
    lamina check pipeline.sql                                # what it will do, what it keeps
    lamina run pipeline.sql --max-rows 5000 --available-now  # 5000 rows an epoch, then end
    lamina status pipeline.sql                               # while it runs, and when it is dead
    lamina list --store .lamina/pipeline/store               # its checkpoints

Kill it whenever you like, with `kill -9` too, and start it again: it goes on after its last
committed epoch, and `out/vwap` has every row once. `lamina stop pipeline.sql` ends it gently.

What it keeps is in `.lamina/pipeline`: `home` is its write-ahead log, `store` its checkpoints.
"""

DEFAULT = "lamina-example"
FILES = {"pipeline.sql": PIPELINE, "README.md": README, ".gitignore": ".lamina/\nout/\n"}


@click.command("init")
@click.argument("folder", metavar="[DIR]", default=DEFAULT)
@json_option
def init_command(folder: str, screen: Screen) -> None:
    """Create an example project in DIR, ready to run.

    DIR defaults to lamina-example. Existing files are never overwritten.
    """
    if not folder.strip() or "\0" in folder:
        raise UsageError("DIR is empty or not a valid path")
    made = make_project(Path(folder))
    if screen.as_json:
        screen.json({"folder": str(Path(folder).absolute()), "files": made})
        return
    screen.line(f"made {', '.join(made)} in {folder}")
    screen.line(f"next: lamina run {Path(folder) / 'pipeline.sql'} --max-rows 5000 --available-now")


def make_project(folder: Path) -> list[str]:
    """All files or none; AlreadyExists if one of them is there."""
    with typed_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if (folder / name).exists():
                raise AlreadyExists(
                    "a file of the example already exists",
                    where=str(folder / name),
                    advice="Choose a new folder",
                )
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")
    return list(FILES)
