"""Nexmark: people, auctions and bids of an online auction, generated: the same for the same seed.

Event n of every 50: the first is a person, three are auctions, 46 are bids. Numbers, proportions
and hot keys are those of the Nexmark generators of Beam and Flink, with two differences: chance is
a hash of (seed, event number, field), so rows can be made in any order and by anybody; and who is
referred to exists already, while there an id may be up to ten ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lamina.connectors.generators import Made, Numbered, chosen, numbers
from lamina.connectors.kinds import DeclaredOption, OptionType, SourceContext, SourceKind
from lamina.connectors.options import bad_option, option_of
from lamina.engine.model import SourceRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CYCLE = 50  # 1 person, 3 auctions, 46 bids
FIRST_ID = 1000
START_US = 1_436_918_400_000_000  # 2015-07-15, as in Beam
IN_FLIGHT_AUCTIONS = 100
ACTIVE_PEOPLE = 1000
HOT_EVERY = 100  # the first of each hundred is the hot one
HOT_AUCTION_RATIO, HOT_SELLER_RATIO, HOT_BIDDER_RATIO = 2, 4, 4  # all but one of so many
OUT_OF_ORDER_PRIME = 953
CHANNELS = 10_000
KINDS = {"person": "r = 0", "auction": "r BETWEEN 1 AND 3", "bid": "r > 3"}

_FIRST_NAMES = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter"
_LAST_NAMES = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"
_CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne"
_STATES = "AZ,CA,ID,OR,WA,WY"
_HOT_CHANNELS = "Google,Facebook,Baidu,Apple"


class Nexmark(Numbered):
    """One kind of event with its fields as columns; or all, each row with one of three structs."""

    def __init__(self, context: SourceContext) -> None:
        source, given, file = context.source, context.given, context.given.file
        super().__init__(source.name, given.number("events"))
        seed, every_us = given.number("seed"), given.number("every_us")
        self._group = given.number("out_of_order")
        if self._group % OUT_OF_ORDER_PRIME == 0 or seed >= 1 << 63:
            raise bad_option(
                source,
                "has an option that does not work",
                file,
                f"seed must be below 2^63, and out_of_order not a multiple of {OUT_OF_ORDER_PRIME}",
            )
        self._kind = given.text("kind").lower()
        self._channels = channels(Chance(seed))
        kinds = events(seed, every_us)
        kind = option_of(source, "kind")
        if kind is not None and self._kind not in kinds:
            message = f"has the kind {kind.written!r}"
            raise bad_option(source, message, file, f"It is {', '.join(kinds)}, or left out")
        made = kinds[self._kind] if self._kind else together(kinds, every_us)
        self._columns = chosen(source, made, file=file)

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        """The limit of rows counts events of all kinds: so kinds are read side by side."""
        group = self._group
        number = f"(id div {group} + 1) * {group} - 1 - (id * {OUT_OF_ORDER_PRIME}) % {group}"
        rows = numbers(spark, planned).selectExpr(f"{number if group > 1 else 'id'} AS e")
        rows = rows.selectExpr("e", f"e div {CYCLE} AS people", f"e % {CYCLE} AS r")
        last = "people * 3 + CASE WHEN r = 0 THEN -1 WHEN r < 4 THEN r - 1 ELSE 2 END AS auctions"
        rows = rows.selectExpr("*", last)  # both: the highest number so far, from 0
        for made in self._channels:
            rows = rows.selectExpr("*", made)
        if self._kind:
            rows = rows.where(KINDS[self._kind])
        return rows.selectExpr(*self._columns)


def events(seed: int, every_us: int) -> dict[str, dict[str, Made]]:
    """The fields of each kind."""
    chance = Chance(seed)
    time = f"{START_US} + e * {every_us}"
    at = Made("TIMESTAMP", f"timestamp_micros({time})")
    return {
        "person": _person(chance, at),
        "auction": _auction(chance, at, time, every_us),
        "bid": _bid(chance, at),
    }


def together(kinds: Mapping[str, Mapping[str, Made]], every_us: int) -> dict[str, Made]:
    """All kinds in one row, as in Flink's table: the struct of its kind is there, others null."""
    columns = {"event_type": Made("INT", "CASE WHEN r = 0 THEN 0 WHEN r < 4 THEN 1 ELSE 2 END")}
    for kind, fields in kinds.items():
        types = ", ".join(f"{name}: {each.type}" for name, each in fields.items())
        values = ", ".join(f"'{name}', {each.sql}" for name, each in fields.items())
        sql = f"CASE WHEN {KINDS[kind]} THEN named_struct({values}) END"
        columns[kind] = Made(f"STRUCT<{types}>", sql)
    time = f"timestamp_micros({START_US} + e * {every_us})"
    return {**columns, "dateTime": Made("TIMESTAMP", time)}


class Chance:
    """SQL for what is left to chance: each use has a number of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def hash(self, use: int, of: str = "e") -> str:
        return f"xxhash64({of}, {self._seed}L, {use})"

    def below(self, limit: int | str, use: int) -> str:
        """0 to *limit* - 1."""
        return f"pmod({self.hash(use)}, CAST({limit} AS BIGINT))"

    def one_of(self, words: str, use: int) -> str:
        count = words.count(",") + 1
        return f"element_at(split('{words}', ','), CAST(1 + {self.below(count, use)} AS INT))"

    def price(self, use: int) -> str:
        """From 1 to a million, in cents: small ones are as likely as large ones, by magnitude."""
        unit = f"CAST(shiftrightunsigned({self.hash(use)}, 11) AS DOUBLE) / 9007199254740992D"
        return f"CAST(round(pow(10D, 6 * ({unit})) * 100) AS BIGINT)"

    def letters(self, use: int, of: str = "e") -> str:
        """Hexadecimal digits, about 16."""
        return f"hex({self.hash(use, of)})"

    def text(self, length_max: int, use: int) -> str:
        """At least three characters."""
        length = f"CAST(3 + {self.below(length_max - 3, use + 500)} AS INT)"
        return f"rpad('', {length}, {self.letters(use)})"

    def padding(self, size: int, use: int) -> str:
        """So long on average, within a fifth of it."""
        least, spread = size - size // 5, 2 * (size // 5)
        return (
            f"rpad('', CAST({least} + {self.below(spread, use + 500)} AS INT), {self.letters(use)})"
        )

    def someone(self, use: int) -> str:
        """One of the people who are active."""
        active = f"least(people + 1, {ACTIVE_PEOPLE})"
        return f"people + 1 - {active} + {self.below(active, use)}"


def _hot(chance: Chance, ratio: int, use: int, hot: str, other: str) -> str:
    id = f"CASE WHEN {chance.below(ratio, use)} > 0 THEN {hot} ELSE {other} END"
    return f"{FIRST_ID} + {id}"


def _person(chance: Chance, at: Made) -> dict[str, Made]:
    digits = (f"lpad(CAST({chance.below(10_000, use)} AS STRING), 4, '0')" for use in range(5, 9))
    email = f"concat({chance.text(7, 3)}, '@', {chance.text(5, 4)}, '.com')"
    first, last = chance.one_of(_FIRST_NAMES, 1), chance.one_of(_LAST_NAMES, 2)
    return {
        "id": Made("BIGINT", f"{FIRST_ID} + people"),
        "name": Made("STRING", f"concat({first}, ' ', {last})"),
        "emailAddress": Made("STRING", email),
        "creditCard": Made("STRING", f"concat_ws(' ', {', '.join(digits)})"),
        "city": Made("STRING", chance.one_of(_CITIES, 9)),
        "state": Made("STRING", chance.one_of(_STATES, 10)),
        "dateTime": at,
        "extra": Made("STRING", chance.padding(132, 11)),
    }


def _auction(chance: Chance, at: Made, time: str, every_us: int) -> dict[str, Made]:
    horizon_us = IN_FLIGHT_AUCTIONS * CYCLE // 3 * every_us
    open_ms = f"1 + {chance.below(max(2 * horizon_us // 1000, 1), 25)}"
    bid = chance.price(23)
    hot = f"people div {HOT_EVERY} * {HOT_EVERY}"
    seller = _hot(chance, HOT_SELLER_RATIO, 26, hot, chance.someone(27))
    return {
        "id": Made("BIGINT", f"{FIRST_ID} + auctions"),
        "itemName": Made("STRING", chance.text(20, 21)),
        "description": Made("STRING", chance.text(100, 22)),
        "initialBid": Made("BIGINT", bid),
        "reserve": Made("BIGINT", f"{bid} + {chance.price(24)}"),
        "dateTime": at,
        "expires": Made("TIMESTAMP", f"timestamp_micros({time} + 1000 * ({open_ms}))"),
        "seller": Made("BIGINT", seller),
        "category": Made("BIGINT", f"10 + {chance.below(5, 28)}"),
        "extra": Made("STRING", chance.padding(390, 29)),
    }


def _bid(chance: Chance, at: Made) -> dict[str, Made]:
    oldest = f"greatest(auctions - {IN_FLIGHT_AUCTIONS}, 0)"
    open_one = f"{oldest} + {chance.below(f'auctions - {oldest} + 1', 42)}"
    hot_auction = f"auctions div {HOT_EVERY} * {HOT_EVERY}"
    hot_bidder = f"least(people div {HOT_EVERY} * {HOT_EVERY} + 1, people)"
    name = f"element_at(split('{_HOT_CHANNELS}', ','), CAST(-channel AS INT))"
    return {
        "auction": Made("BIGINT", _hot(chance, HOT_AUCTION_RATIO, 41, hot_auction, open_one)),
        "bidder": Made(
            "BIGINT", _hot(chance, HOT_BIDDER_RATIO, 43, hot_bidder, chance.someone(44))
        ),
        "price": Made("BIGINT", chance.price(45)),
        "channel": Made(
            "STRING", f"CASE WHEN channel < 0 THEN {name} ELSE concat('channel-', channel) END"
        ),
        "url": Made("STRING", _url()),
        "dateTime": at,
        "extra": Made("STRING", chance.padding(68, 51)),
    }


def channels(chance: Chance) -> tuple[str, str]:
    """A column for the number of a bid's channel, below 0 if it is a hot one; and one for chance.

    They are columns of their own because several fields are made of them.
    """
    hot, cold = f"-1 - {chance.below(4, 47)}", chance.below(CHANNELS, 48)
    number = f"CASE WHEN {chance.below(2, 46)} > 0 THEN {hot} ELSE {cold} END AS channel"
    return number, f"{chance.letters(49, of='channel')} AS path"


def _url() -> str:
    """The same for all bids of a channel; most of the cold ones name it."""
    parts = ", '/', ".join(f"substr(path, {at}, 5)" for at in (1, 6, 11))
    named = "channel >= 0 AND pmod(channel, 10) > 0"
    id = f"CASE WHEN {named} THEN concat('&channel_id=', channel) ELSE '' END"
    return f"concat('https://www.nexmark.com/', {parts}, '/item.htm?query=1', {id})"


NEXMARK = SourceKind(
    "nexmark",
    "Generated events of the Nexmark benchmark, see below",
    open=Nexmark,
    check=Nexmark,
    options=(
        DeclaredOption(
            "events", "Number of events, of all kinds", OptionType.NUMBER, 10_000, least=0
        ),
        DeclaredOption(
            "seed", "The same seed makes the same events", OptionType.NUMBER, 1, least=0
        ),
        DeclaredOption("kind", "`person`, `auction` or `bid`; all three if left out"),
        DeclaredOption("every_us", "Microseconds between events", OptionType.NUMBER, 100, least=0),
        DeclaredOption(
            "out_of_order",
            "Shuffle the order within groups of this many events",
            OptionType.NUMBER,
            1,
        ),
    ),
)
