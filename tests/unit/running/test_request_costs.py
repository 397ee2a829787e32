"""What requests cost: against figures worked out by hand, and a checkpoint that is made."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from lamina.errors import UsageError
from lamina.running.request_costs import (
    CHECKPOINT,
    Pace,
    Requests,
    all_prices,
    as_of,
    price_of,
    sentence,
    shape,
)

STANDARD, EXPRESS = "s3://bucket/home", "s3://bucket--use1-az4--x-s3/home"


@pytest.mark.parametrize(
    ("seconds", "puts", "standard", "express"),
    [
        (1, 1, 12.96, 2.93),
        (1, 9, 116.64, 26.36),
        (1, 65, 842.40, 190.38),
        (10, 1, 1.30, 0.29),
        (10, 65, 84.24, 19.04),
        (60, 1, 0.22, 0.05),
    ],
)
def test_a_month_of_epochs(seconds: float, puts: int, standard: float, express: float) -> None:
    pace = Pace(seconds, Requests(puts=puts))
    assert shape(STANDARD, pace)["usd_per_month"] == standard
    assert shape(EXPRESS, pace)["usd_per_month"] == express


def test_every_kind_of_request_and_the_checkpoints_count() -> None:
    pace = Pace(10, Requests(puts=1, gets=2, lists=0.5), checkpoint_epochs=60, checkpoint_files=8)
    epochs = 259_200
    month = pace.month()
    saved = epochs / 60
    assert month.puts == epochs + saved * (8 + 9 + 1)
    assert (month.gets, month.lists) == (2 * epochs + saved * 55, epochs / 2 + saved * 8)
    usd = (month.puts * 5 + month.lists * 5 + month.gets * 0.4) / 1e6
    assert month.usd(price_of(STANDARD)) == pytest.approx(usd)
    assert shape(STANDARD, pace) == {
        "store_class": "S3 Standard",
        "prices_as_of": as_of(),
        "epoch_seconds": 10,
        "puts_per_month": 336_960,
        "gets_per_month": 756_000,
        "lists_per_month": 164_160,
        "usd_per_month": round(usd, 2),
    }
    said = sentence(shape(STANDARD, pace))
    assert "1,257,120 requests" in said
    assert f"about {usd:.2f} USD (S3 Standard, list prices of {as_of()}" in said


def test_without_checkpoints_by_number_there_are_none() -> None:
    assert Pace(1, Requests(puts=1), 0, 8).month() == Requests(puts=2_592_000)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (STANDARD, "S3 Standard"),
        (EXPRESS, "S3 Express One Zone"),
        ("gs://bucket--x-s3", "GCS Standard"),
        ("az://container", "Azure Blob hot"),
        ("abfss://container@account.dfs.core.windows.net/x", "Azure Blob hot"),
    ],
)
def test_the_address_says_which_prices_count(url: str, name: str) -> None:
    assert price_of(url).name == name


def test_prices_are_dated_and_sane() -> None:
    dt.datetime.strptime(as_of(), "%Y-%m").replace(tzinfo=dt.UTC)
    for price in all_prices():
        assert 0 < price.get < price.list <= price.put
        assert price.page.startswith("https://")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_an_epoch_that_takes_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError):
        Pace(seconds, Requests(puts=1))
    with pytest.raises(UsageError):
        Pace(1, Requests(), checkpoint_files=-1)


def test_the_page_of_stores_has_these_figures() -> None:
    page = (Path(__file__).parents[3] / "docs" / "stores.md").read_text()
    for seconds in (1, 10, 60):
        pace = Pace(seconds, Requests(puts=1))
        usd = [shape(url, pace)["usd_per_month"] for url in (STANDARD, EXPRESS)]
        assert f"| {seconds} s | {usd[0]:.2f} USD | {usd[1]:.2f} USD |" in page
    made = f"{CHECKPOINT.puts} PUTs, {CHECKPOINT.gets} GETs and {CHECKPOINT.lists} LISTs"
    assert made in page.replace("\n", " ")
