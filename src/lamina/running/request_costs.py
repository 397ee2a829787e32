"""What the requests of a pipeline cost in a month, at the list prices of prices.json.

Only requests are counted: not bytes stored or moved, not free tiers, not discounts. Deleting is
free everywhere. A pipeline that has nothing to read runs no epochs, so a figure is the most that
the epochs of an interval can cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lamina.errors import UsageError
from lamina.store.address import Address

MONTH_SECONDS = 30 * 24 * 60 * 60
MILLION = 1_000_000
_EXPRESS = "--x-s3"  # how names of directory buckets end
_NAMES = {
    "s3": "S3 Standard",
    "gs": "GCS Standard",
    "az": "Azure Blob hot",
    "abfs": "Azure Blob hot",
    "abfss": "Azure Blob hot",
}


@dataclass(frozen=True, slots=True)
class Price:
    """USD for a million requests of each kind."""

    name: str
    region: str
    page: str
    put: float
    list: float
    get: float


@dataclass(frozen=True, slots=True)
class Requests:
    """So many of each kind; in an epoch, in a checkpoint or in a month."""

    puts: float = 0
    gets: float = 0
    lists: float = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(self.puts + other.puts, self.gets + other.gets, self.lists + other.lists)

    def __mul__(self, times: float) -> Requests:
        return Requests(self.puts * times, self.gets * times, self.lists * times)

    def usd(self, price: Price) -> float:
        asked = self.puts * price.put + self.gets * price.get + self.lists * price.list
        return asked / MILLION


CHECKPOINT = Requests(puts=9, gets=55, lists=8)
"""Of a checkpoint beside its files, when three are kept: begin.json, manifest, two log entries with
a hint each, and three pieces of the home's log; what gc reads to know what nobody names; listings.
"""

HISTORY = Requests(puts=1)
"""With a checkpoint, once a minute at most."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a pipeline writes, and how much of it are requests.

    *checkpoint_epochs* is 0 for a pipeline that makes no checkpoints by their number.
    """

    epoch_seconds: float
    epoch: Requests
    checkpoint_epochs: int = 0
    checkpoint_files: int = 0

    def __post_init__(self) -> None:
        if not self.epoch_seconds > 0:
            raise UsageError(f"an epoch takes more than {self.epoch_seconds:g} seconds")
        if self.checkpoint_epochs < 0 or self.checkpoint_files < 0:
            raise UsageError("a checkpoint has no negative number of epochs or files")

    def month(self) -> Requests:
        """All requests of thirty days."""
        epochs = MONTH_SECONDS / self.epoch_seconds
        saved = epochs / self.checkpoint_epochs if self.checkpoint_epochs else 0.0
        checkpoint = CHECKPOINT + HISTORY + Requests(puts=self.checkpoint_files)
        return self.epoch * epochs + checkpoint * saved


def price_of(url: str) -> Price:
    """That of the store at *url*; UsageError if it is none that charges for requests."""
    address = Address.parse(url)
    is_express = address.scheme == "s3" and address.bucket.endswith(_EXPRESS)
    name = "S3 Express One Zone" if is_express else _NAMES[address.scheme]
    return next(price for price in all_prices() if price.name == name)


def all_prices() -> tuple[Price, ...]:
    return tuple(Price(**row) for row in _table()["prices"])


def as_of() -> str:
    """The month of the list prices, for people."""
    return str(_table()["as_of"])


@cache
def _table() -> dict[str, Any]:
    text = files("lamina.running").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def shape(url: str, pace: Pace) -> dict[str, Any]:
    """For `--json`: a month of requests, and what they cost."""
    month, price = pace.month(), price_of(url)
    return {
        "store_class": price.name,
        "prices_as_of": as_of(),
        "epoch_seconds": pace.epoch_seconds,
        "puts_per_month": round(month.puts),
        "gets_per_month": round(month.gets),
        "lists_per_month": round(month.lists),
        "usd_per_month": round(month.usd(price), 2),
    }


def sentence(found: Mapping[str, Any]) -> str:
    """For people: one line of what `shape` has found."""
    asked = sum(found[f"{kind}_per_month"] for kind in ("puts", "gets", "lists"))
    return (
        f"up to {asked:,} requests a month with an epoch each {found['epoch_seconds']:g} s: "
        f"about {found['usd_per_month']:,.2f} USD ({found['store_class']}, list prices of "
        f"{found['prices_as_of']}, without storage)"
    )
