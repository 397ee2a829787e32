"""Columns in the names of folders: which files are read together, and what Spark would misread."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.connectors.partitions import Chain, by_chain, chain_of, values_in
from lamina.errors import Refused

WANTED = {"day", "hour"}


@pytest.mark.parametrize(
    ("path", "chain"),
    [
        ("f", Chain()),
        ("a/b/f", Chain()),
        ("other=1/f", Chain()),
        ("day=1", Chain()),  # a file, not a folder
        ("day=1/f", Chain("", ("day",))),
        ("a/DAY=1/Hour=2/f", Chain("a", ("day", "hour"))),
        ("a/region=eu/day=1/below/f", Chain("a", ("day",))),
        ("day=1=2/f", Chain("", ("day",))),
    ],
)
def test_where_columns_are_in_a_path(path: str, chain: Chain) -> None:
    assert chain_of(Path("/in"), path, WANTED) == chain


@pytest.mark.parametrize(
    "path", ["day=1/a/hour=2/f", "day=1/a/other=2/f", "day=1/day=2/f", "day=/f", "=1/day=2/f"]
)
def test_what_spark_would_misread_is_refused_by_name(path: str) -> None:
    with pytest.raises(Refused) as raised:
        chain_of(Path("/in"), path, WANTED)
    assert raised.value.where == f"/in/{path}"


def test_values_are_read_as_spark_reads_them() -> None:
    path = "x/Day=2024%2F01%3a1/hour=__HIVE_DEFAULT_PARTITION__/other=a=b/f=1"
    chain = chain_of("s3://b", path, {"day", "hour", "other"})
    assert chain == Chain("x", ("day", "hour", "other"))
    assert values_in(path, chain) == ["2024/01:1", None, "a=b"]
    assert values_in("x/f", Chain()) == []


def test_files_of_one_chain_are_read_together() -> None:
    paths = ["a/day=1/f", "f", "a/day=2/g", "b/day=1/f", "x/f"]
    assert by_chain(Path("/in"), paths, ["Day"]) == {
        Chain("a", ("day",)): ["a/day=1/f", "a/day=2/g"],
        Chain(): ["f", "x/f"],
        Chain("b", ("day",)): ["b/day=1/f"],
    }
