"""Queries in WHERE that are joins: which join each is, and which cannot be one."""

from __future__ import annotations

import pytest

from lamina.errors import BadPipeline
from lamina.pipeline.blocks import unfold
from lamina.pipeline.model import JoinKind, JoinOf, Stream
from lamina.pipeline.select import read_select

FILE = "p.sql"


def joins(select: str) -> list[JoinOf]:
    return [each.join for each in unfold(Stream("s", select), file=FILE) if each.join is not None]


@pytest.mark.parametrize(
    ("where", "kind", "on", "values"),
    [
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", JoinKind.SEMI, "b.k = a.k", ()),
        ("NOT EXISTS (SELECT * FROM b AS b WHERE k = a.k)", JoinKind.ANTI, "k = a.k", ()),
        ("NOT (NOT (EXISTS (SELECT 1 FROM b)))", JoinKind.SEMI, "", ()),
        ("a.x IN (SELECT DISTINCT b.y FROM b)", JoinKind.SEMI, "", (("a.x", "b.y"),)),
        ("x NOT IN (SELECT y FROM b WHERE z > 1)", JoinKind.ANTI, "z > 1", (("x", "y"),)),
        ("NOT x IN (SELECT y FROM b)", JoinKind.ANTI, "", (("x", "y"),)),
        ("(x, z) IN (SELECT y, w + 1 FROM b)", JoinKind.SEMI, "", (("x", "y"), ("z", "w + 1"))),
    ],
)
def test_a_query_in_where_is_a_join(
    where: str, kind: JoinKind, on: str, values: tuple[tuple[str, str], ...]
) -> None:
    text = f"SELECT a.k FROM a WHERE a.n > 1 AND {where} AND a.m < 2"
    (join,) = joins(text)
    assert (join.kind, join.left, join.right) == (kind, "a", "b")
    assert (join.left_alias, join.right_alias) == ("a", "b")
    assert (join.on, join.values, join.is_inner) == (on, values, True)


def test_the_rest_of_where_stays_where_it_was() -> None:
    text = "SELECT a.k\nFROM a WHERE EXISTS (SELECT 1\n  FROM b\n WHERE b.k = a.k)\nAND a.m < 2"
    last = unfold(Stream("s", text), file=FILE)[-1]
    assert last.select.index("a.m < 2") == text.index("a.m < 2")
    assert last.select.count("\n") == text.count("\n")
    assert " ".join(last.select.split()) == "SELECT a.k FROM a WHERE true AND a.m < 2"
    assert read_select(last, FILE).reads == ("s.join",)


def test_a_query_with_groups_is_a_block_that_in_compares_with() -> None:
    blocks = unfold(
        Stream(
            "s",
            "SELECT k FROM a WHERE (w, k) IN (SELECT window.end AS w, k FROM b "
            "GROUP BY window(ts, '1 hour'), k HAVING count(*) > 1)",
        ),
        file=FILE,
    )
    assert [each.name for each in blocks] == ["s.subquery 1", "s.join", "s"]
    (join,) = (each.join for each in blocks if each.join is not None)
    assert join.values == (("w", "`subquery 1`.`w`"), ("k", "`subquery 1`.`k`"))


def test_several_are_one_join_after_the_other() -> None:
    found = joins(
        "SELECT a.k FROM a JOIN c ON a.k = c.k WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) "
        "AND c.x > 1 AND a.k NOT IN (SELECT d.k FROM d WHERE d.j = c.j)"
    )
    assert [each.kind for each in found] == [JoinKind.INNER, JoinKind.SEMI, JoinKind.ANTI]
    assert [each.right for each in found] == ["c", "b", "d"]
    assert "SELECT" not in found[0].where
    assert "c.x > 1" in found[0].where


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("a.x > 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", "EXISTS (SELECT ...) under OR"),
        ("NOT (a.x > 1 AND a.k IN (SELECT k FROM b))", "IN (SELECT ...) under OR"),
        ("a.x OR a.k NOT IN (SELECT k FROM b)", "IN (SELECT ...) under OR"),
        ("a.x = a.k IN (SELECT k FROM b)", "IN (SELECT ...) under OR"),
        ("coalesce(a.k IN (SELECT k FROM b), true)", "IN (SELECT ...) under OR"),
        ("EXISTS (SELECT 1 FROM a WHERE a.k = 1)", "two tables of this query are called 'a'"),
        ("EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)", "a.k in a subquery that is more"),
        ("EXISTS (SELECT b.k FROM b GROUP BY b.k)", "EXISTS in a subquery that is more"),
        ("EXISTS (SELECT 1 FROM b JOIN c ON b.k = c.k WHERE c.k = a.k)", "a.k in a subquery"),
        ("a.k IN (SELECT max(b.k) FROM b WHERE b.j = a.j)", "a.j in a subquery that is more"),
        ("a.k IN (SELECT k, j FROM b)", "IN compares 1 columns with 2"),
        ("a.k IN (SELECT * FROM b)", "* in IN (SELECT ...)"),
        ("a.k IN (SELECT count(*) FROM b GROUP BY b.j)", "has no name"),
        (
            "EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.j IN (SELECT j FROM c))",
            "a query inside of the condition of another one",
        ),
        ("a.x = ALL (SELECT max(x) FROM b)", "SELECT inside an expression"),
    ],
)
def test_what_cannot_be_a_join_is_refused(where: str, said: str) -> None:
    with pytest.raises(BadPipeline) as caught:
        joins(f"SELECT a.k FROM a WHERE {where}")
    assert said in str(caught.value)
