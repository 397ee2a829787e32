"""The pages for people who come from elsewhere: their pipelines can be read, and are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamina.pipeline import check_pipeline, parse_pipeline

PAGES = Path(__file__).parents[3] / "docs" / "guide"
NAMES = ("from-flink.md", "from-structured-streaming.md")


@pytest.mark.parametrize("name", NAMES)
def test_the_pipelines_of_a_page_can_be_read(name: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", (PAGES / name).read_text(), re.DOTALL)
    ours = [block for block in blocks if "CREATE SOURCE" in block]
    assert ours
    for block in ours:
        pipeline = parse_pipeline(block, {"PGPASSWORD": "x"}, file=name)
        check_pipeline(pipeline, file=name)
        assert pipeline.sinks


def test_the_query_of_flink_and_ours_differ_in_emit_and_in_nothing_else() -> None:
    page = (PAGES / "from-flink.md").read_text()
    theirs = re.findall(r"INSERT INTO vwap SELECT (.*?);", page, re.DOTALL)
    ours = re.findall(r"CREATE STREAM vwap AS SELECT (.*?)EMIT ON WINDOW CLOSE;", page, re.DOTALL)
    assert len(theirs) == len(ours) == 1
    plain = [re.sub(r" AS \w+|\s+", " ", each).split() for each in (*theirs, *ours)]
    said = [" ".join(each).replace(" ,", ",") for each in plain]
    assert said[0] == said[1]
