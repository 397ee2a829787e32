"""Which columns tell the rows of a join apart."""

from __future__ import annotations

import pytest

from lamina.pipeline.join_keys import Columns, keys_of_join
from lamina.pipeline.model import JoinKind

ORDER, CUSTOMER, BOTH = ("o.id",), ("c.id",), ("o.id", "c.id")
INNER, LEFT, RIGHT, FULL = JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL


@pytest.mark.parametrize(
    ("kind", "equal", "keys"),
    [
        (INNER, (["o.customer"], ["C.id", "c.x"]), ORDER),
        (INNER, (["o.ID"], ["c.order_id"]), CUSTOMER),
        (INNER, (["o.name"], ["c.name"]), BOTH),
        (LEFT, (["o.customer"], ["c.id"]), ORDER),
        (LEFT, (["o.id"], ["c.order_id"]), BOTH),
        (RIGHT, (["o.customer"], ["c.id"]), BOTH),
        (RIGHT, (["o.id"], ["c.order_id"]), CUSTOMER),
        (FULL, (["o.id"], ["c.id"]), None),
        (JoinKind.SEMI, (["o.name"], ["c.name"]), ORDER),
        (JoinKind.ANTI, (["o.name"], ["c.name"]), ORDER),
    ],
)
def test_what_tells_the_rows_of_a_join_apart(
    kind: JoinKind, equal: tuple[list[str], list[str]], keys: Columns | None
) -> None:
    """`o.id` and `c.id` tell the rows of the two sides apart."""
    assert keys_of_join(kind, (ORDER, CUSTOMER), equal) == keys


def test_keys_that_are_not_known_are_needed_only_of_the_side_that_has_one_partner() -> None:
    assert keys_of_join(INNER, (None, CUSTOMER), (["o.x"], ["c.id"])) is None
    assert keys_of_join(INNER, (ORDER, None), (["o.x"], ["c.x"])) is None
    assert keys_of_join(LEFT, (ORDER, CUSTOMER), (["o.x"], ["c.id"])) == ORDER
    assert keys_of_join(INNER, (ORDER, ()), (["o.x"], ["c.x"])) == ORDER, "there is one row at most"
    assert keys_of_join(JoinKind.SEMI, (None, CUSTOMER), ([], [])) is None
