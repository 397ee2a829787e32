"""Graphs, plots, lineage and heat maps: pure, escaped, and the same every time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.console.drawing.graph import Edge, Node, draw_graph
from lamina.console.drawing.heat import draw_heat, shade
from lamina.console.drawing.layers import place
from lamina.console.drawing.lineage import Link, draw_row, lanes
from lamina.console.drawing.plots import POINTS_MAX, Point, buckets, draw_plot
from lamina.console.drawing.sql import highlight
from lamina.console.drawing.svg import tag

HOSTILE = "\"><script>alert(1)</script>&'"


def test_attributes_and_children_are_escaped() -> None:
    assert tag("g", HOSTILE, class_=HOSTILE, stroke_width=1, id=None) == (
        '<g class="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#39;" stroke-width="1">'
        "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#39;</g>"
    )


def test_who_is_read_stands_left_of_who_reads() -> None:
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")]
    placed = place(["c", "b", "a", "d"], edges)
    layer = {node: number for number, nodes in enumerate(placed.layers) for node in nodes}
    assert all(layer[source] < layer[target] for source, target in edges)
    assert [layer[node] for node in "abc"] == [0, 1, 2]
    assert len(placed.routes["a", "c"]) == 3  # it passes the layer of b beside b


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")), max_size=20))
def test_any_graph_can_be_placed_circles_too(edges: list[tuple[str, str]]) -> None:
    placed = place("abcdefgh", edges)
    nodes = [node for layer in placed.layers for node in layer if not placed.is_bend(node)]
    assert sorted(nodes) == list("abcdefgh")
    layer = {node: number for number, nodes in enumerate(placed.layers) for node in nodes}
    for source, *bends, target in placed.routes.values():
        steps = [layer[node] for node in (source, *bends, target)]
        assert steps == list(range(steps[0], steps[-1] + 1))


def test_edges_do_not_cross_where_they_need_not() -> None:
    placed = place(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    (_, right) = placed.layers
    assert right == ("y", "x")


def test_a_graph_is_well_formed_whatever_its_parts_are_called() -> None:
    nodes = [Node("1", "source", HOSTILE), Node("2", "sink", "x" * 10_000, HOSTILE, "1 KiB")]
    drawn = draw_graph(nodes, [Edge("1", "2", HOSTILE), Edge("1", "nobody")], HOSTILE)
    ET.fromstring(drawn)
    assert "<script" not in drawn
    assert "x" * 300 not in drawn


def test_a_plot_has_few_points_however_long_the_history_is() -> None:
    points = [Point(n, n % 100) for n in range(100_000)]
    found = buckets(points)
    assert len(found) == POINTS_MAX
    assert {(each.low, each.high) for each in found} == {(0, 99)}
    drawn = draw_plot(points, "rows", said=str, when=str, kind="rows")
    ET.fromstring(drawn)
    assert len(drawn) < 60_000


@pytest.mark.parametrize(
    "points",
    [[], [Point(1, 5)], [Point(5, 1), Point(5, 2)], [Point(9, 1), Point(1, 2)], [Point(1, -5)] * 3],
)
def test_any_points_can_be_drawn(points: list[Point]) -> None:
    ET.fromstring(draw_plot(points, HOSTILE, said=str, when=str, kind="rows"))


def test_the_fullest_vnode_is_the_darkest_and_an_empty_one_has_no_shade() -> None:
    assert [shade(rows, 100) for rows in (0, 1, 50, 99, 100)] == [0, 1, 4, 7, 8]
    drawn = ET.fromstring(draw_heat([0] * 255 + [7], "heat"))
    assert len(list(drawn)) == 256
    assert shade(0, 0) == 0


def test_a_rewind_begins_a_lane_of_its_own_and_leads_to_its_parent() -> None:
    """1 <- 2 <- 3 was left for 4, which is built on 2: newest first."""
    rows = lanes([Link(5, 4), Link(4, 2), Link(3, 2), Link(2, 1), Link(1, None)])
    assert [row.lane for row in rows] == [0, 0, 1, 0, 0]
    assert rows[3].joins == (1,)
    assert rows[4].below == ()
    for row in rows:
        ET.fromstring(draw_row(row, kind="full", width=60))


def test_sql_in_colour_is_still_the_text_and_nothing_else() -> None:
    text = "SELECT '<b>' AS x -- </span><script>\nFROM t WHERE y > 1 AND z = ${SECRET} & 'it''s'"
    drawn = highlight(text)
    assert "".join(ET.fromstring(f"<pre>{drawn}</pre>").itertext()) == text
    assert '<span class="sql-k">SELECT</span>' in drawn
    assert "<script>" not in drawn
