"""What the condition of a join says: keys, bounds, and what is asked of one side or of pairs."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline.join_conditions import Condition, Conditions, Relation
from lamina.pipeline.tokens import read_script

MINUTE = 60_000_000
HOUR = 60 * MINUTE
ORDERS = Relation("o", ("id", "ts", "state", "total"), frozenset({"ts"}))
PAYMENTS = Relation("p", ("order_id", "paid", "amount", "total"), frozenset({"paid"}))


def read(text: str) -> Condition:
    script = read_script(text, "f")
    return Conditions(script, ([ORDERS], [PAYMENTS])).read(script.words)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("p.paid BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR", 0, HOUR),
        ("paid BETWEEN ts - INTERVAL '5' MINUTES AND ts", -5 * MINUTE, 0),
        ("o.ts BETWEEN p.paid - INTERVAL 1 HOUR AND p.paid", 0, HOUR),
        ("p.paid >= o.ts AND p.paid <= o.ts + INTERVAL '1 hour 30 minutes'", 0, 90 * MINUTE),
        ("o.ts < p.paid AND (p.paid - INTERVAL 1 HOUR < o.ts)", 1, HOUR - 1),
        ("p.paid + INTERVAL 2 MINUTES > o.ts AND p.paid < o.ts", 1 - 2 * MINUTE, -1),
        ("(p.paid = o.ts)", 0, 0),
        ("p.paid >= o.ts", 0, None),
        ("p.paid <= (o.ts + INTERVAL 1 HOUR)", None, HOUR),
        ("p.paid >= o.ts AND p.paid >= o.ts + INTERVAL 1 MINUTE", MINUTE, None),
        ("p.paid <= o.ts + make_interval(0, 0, 0, 0, 1)", None, None),
        ("(p.paid <= o.ts OR p.paid = o.ts)", None, None),
        ("p.paid BETWEEN o.ts AND o.state", 0, None),
        ("NOT p.paid BETWEEN o.ts AND o.ts", None, None),
    ],
)
def test_bounds_are_read_whichever_way_they_are_written(
    text: str, low: int | None, high: int | None
) -> None:
    found = read(f"o.id = p.order_id AND {text}")
    assert (found.low, found.high) == (low, high)
    assert found.keys[0] == ("o.id", "p.order_id")


def test_every_part_goes_where_it_is_asked() -> None:
    found = read(
        "(p.order_id = o.id AND o.state = 'paid') AND lower(p.amount) <> 'x' "
        "AND o.id + 1 = p.amount AND amount < o.total AND p.amount IN (1, 2)"
    )
    assert found.keys == (("o.id", "p.order_id"), ("o.id + 1", "p.amount"))
    assert found.sides == (("o.state = 'paid'",), ("lower(p.amount) <> 'x'", "p.amount IN (1, 2)"))
    assert found.pairs == ("amount < o.total",)


def test_a_bound_that_is_no_length_of_time_is_asked_of_pairs() -> None:
    found = read("o.id = p.order_id AND p.paid BETWEEN o.ts AND o.state")
    assert found.pairs == ("p.paid BETWEEN o.ts AND o.state",)


def test_a_name_in_a_subquery_is_one_of_its_own_table_first() -> None:
    script = read_script("order_id = id AND total > 3 AND total < o.total + amount", "f")
    found = Conditions(script, ([ORDERS], [PAYMENTS]), is_inner=True).read(script.words)
    assert found.keys == (("id", "order_id"),)
    assert found.sides == ((), ("total > 3",))
    assert found.pairs == ("`p`.total < o.total + `p`.amount",)


def test_equal_times_are_a_key_too() -> None:
    found = read("o.ts = p.paid")
    assert found.keys == (("o.ts", "p.paid"),)


def test_a_column_of_both_sides_is_ambiguous() -> None:
    with pytest.raises(BadPipeline, match=r"'total' is ambiguous: there are o.total and p.total"):
        read("o.id = p.order_id AND total > 3")


def test_a_where_about_a_table_that_is_joined_later_is_not_for_this_join() -> None:
    script = read_script("o.state = 'paid' AND q.x = o.id AND later > o.total AND q.y = 1", "f")
    found = Conditions(script, ([ORDERS], [PAYMENTS]), is_of_more=True).read(script.words)
    assert found.sides == (("o.state = 'paid'",), ())
    assert found.keys == ()
