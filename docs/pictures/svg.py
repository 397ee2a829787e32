"""A few SVG elements: enough to draw the pictures of the documentation without a library."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

INK, FAINT, LINE = "#1f2933", "#616e7c", "#9aa5b1"
BLUE, GREEN, AMBER, RED, PAPER = "#2f6fb2", "#2e7d4f", "#b7791f", "#b83232", "#ffffff"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


def box(x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "none") -> str:
    return (
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='6' "
        f"fill='{fill}' stroke='{stroke}'/>"
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    fill: str = INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' fill='{fill}' text-anchor='{anchor}' "
        f"font-weight='{weight}'>{escape(words)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = LINE, dash: str = "") -> str:
    dashes = f" stroke-dasharray='{dash}'" if dash else ""
    return (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{stroke}' "
        f"stroke-width='1.5'{dashes}/>"
    )


def arrow(x1: float, y1: float, x2: float, y2: float, *, dash: str = "") -> str:
    return line(x1, y1, x2, y2, stroke=FAINT, dash=dash).replace("/>", " marker-end='url(#tip)'/>")


def write(path: Path, width: int, height: int, title: str, parts: Iterable[str]) -> None:
    """The whole picture; the same parts give the same bytes."""
    body = "\n".join(parts)
    path.write_text(
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' role='img' {FONT}>\n<title>{escape(title)}</title>\n"
        "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' "
        f"markerHeight='7' orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='{FAINT}'/>"
        "</marker></defs>\n"
        f"{box(0, 0, width, height, fill=PAPER)}\n{body}\n</svg>\n"
    )
