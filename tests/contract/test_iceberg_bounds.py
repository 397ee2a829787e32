"""Bounds of Iceberg data files: used where they can be, left out where they cannot be written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lamina.errors import Refused
from tests.contract.test_iceberg_sink import WORDS, Shop, listed, words

FAR_DAY, FAR_US = 2_932_897, 253_402_300_800_000_005  # just after the year 9999
FAR = {
    "date": pa.array([FAR_DAY, 0, None], pa.int32()).cast(pa.date32()),
    "instant": pa.array([FAR_US, 0, None], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "local": pa.array([FAR_US, 0, None], pa.int64()).cast(pa.timestamp("us")),
}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def far(name: str) -> pa.Table:
    return pa.table({"k": FAR[name], "v": pa.array([1, 2, 3])})


def numbers(rows: pa.Table) -> list[tuple[int | None, int]]:
    """By numbers: Python has no such times."""
    kind = pa.int32() if pa.types.is_date(rows["k"].type) else pa.int64()
    pairs = zip(rows["k"].cast(kind).to_pylist(), rows["v"].to_pylist(), strict=True)
    return sorted(pairs, key=repr)


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("files", [1, 2])
def test_a_time_after_the_year_9999_does_not_stop_an_append(
    shop: Shop, name: str, files: int
) -> None:
    """One file is copied, two small ones are written again."""
    given = far(name)
    shop.claimed(given.schema).publish(shop.publication(1, *[given] * files))
    assert numbers(shop.rows()) == sorted(numbers(given) * files, key=repr)


@pytest.mark.parametrize("name", FAR)
def test_a_time_after_the_year_9999_may_be_a_key(shop: Shop, name: str) -> None:
    given = far(name)
    sink = shop.claimed(given.schema, keys=("k",))
    sink.publish(shop.publication(1, given))
    again = given.set_column(1, "v", pa.array([7, 8, 9]))
    sink.publish(shop.publication(2, again))
    assert numbers(shop.rows()) == numbers(again)


def test_a_partition_by_a_date_after_the_year_9999_is_refused_by_name(shop: Shop) -> None:
    given = far("date")
    sink = shop.claimed(given.schema, partition_by=("k",))
    with pytest.raises(Refused, match="9999") as raised:
        sink.publish(shop.publication(1, given))
    assert raised.value.advice
    assert sink.position().point is None


def test_many_keys_are_looked_for_by_their_limits(shop: Shop) -> None:
    """pyiceberg passes no file over for a longer list: it would read the file that is gone."""
    sink = shop.claimed(WORDS, keys=("id",))
    sink.publish(shop.publication(1, words((-1, "far away"))))
    (gone,) = shop.files()
    Path(gone.removeprefix("file://")).rename(shop.folder / "aside")
    many = [(key, "a") for key in range(400)]
    sink.publish(shop.publication(2, words(*many)))
    (shop.folder / "aside").rename(Path(gone.removeprefix("file://")))
    assert listed(shop.rows()) == sorted([(-1, "far away"), *many])
