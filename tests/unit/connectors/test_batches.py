"""Which batch of a query follows which: the source behind `lamina.spark.sink`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamina.connectors.batches import Batch, BatchSource, Fingerprint
from lamina.connectors.opening import check_source
from lamina.connectors.registry import source_names
from lamina.engine.model import Offset
from lamina.engine.ports import Limits
from lamina.errors import BadPipeline, Diverged, LaminaError, Refused
from lamina.pipeline.statements import parse_pipeline

LAST = Batch(4, "q", Fingerprint(10, -77), "global_temp.v")


def planned(start: Offset, batch: Batch | None, query: str = "") -> Offset:
    source = BatchSource("batches", query=query)
    source.offer(batch)
    return source.plan(start, Limits(), None).end


def test_the_first_batch_may_have_any_number() -> None:
    assert planned({}, LAST) == {"batch": "4", "query": "q", "rows": "10", "hash": "-77"}


def test_the_next_batch_is_read_and_the_same_one_is_not() -> None:
    following = replace(LAST, number=5)
    assert planned(LAST.offset, following) == following.offset
    assert planned(LAST.offset, LAST) == LAST.offset
    assert planned(LAST.offset, None) == LAST.offset


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (replace(LAST, content=Fingerprint(10, -78)), Diverged),
        (replace(LAST, content=Fingerprint(11, -77)), Diverged),
        (replace(LAST, number=3), Refused),
        (replace(LAST, number=6), Refused),
        (replace(LAST, query="other"), Refused),
        (replace(LAST, number=5, query="other"), Refused),
        (replace(LAST, number=0, query=""), Refused),
    ],
)
def test_what_does_not_follow_is_named(batch: Batch, error: type[LaminaError]) -> None:
    with pytest.raises(error) as raised:
        planned(LAST.offset, batch)
    assert raised.value.advice


def test_a_query_that_a_person_has_named_goes_on_once() -> None:
    first = replace(LAST, number=0, query="other")
    assert planned(LAST.offset, first, query="other") == first.offset
    assert planned(first.offset, first, query="other") == first.offset
    with pytest.raises(Refused):
        planned(first.offset, LAST, query="other")


def test_a_pipeline_file_cannot_have_such_a_source() -> None:
    text = """CREATE SOURCE b (k STRING) USING structured_streaming_batches
      OPTIONS (batches 'x'); CREATE STREAM s AS SELECT k FROM b;"""
    source = parse_pipeline(text, {}).sources["b"]
    with pytest.raises(BadPipeline, match=r"lamina\.spark\.sink"):
        check_source(source, Path())
    assert "structured_streaming_batches" not in source_names()
