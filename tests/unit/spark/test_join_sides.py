"""The rows of one side of a join, as SQL."""

from __future__ import annotations

from lamina.spark.joins import JoinSide


def test_rows_that_cannot_have_a_partner_go_to_the_owner_of_their_key() -> None:
    side = JoinSide("o", ("o.id",), "o.ts", (("o.id", "o.id"),), only="o.state = 'a'")
    text = side.sql("orders", ["o.id"], {"k0": "bigint", "o.id": "bigint"}, is_right=False)
    assert "CAST(o.id AS bigint) AS k0" in text
    assert "NOT coalesce(o.state = 'a', false) AS _alone" in text
