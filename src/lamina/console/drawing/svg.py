"""SVG as text that is safe: attributes and children are escaped, unless they are markup of ours.

Colours are classes: the style sheet knows light and dark.
"""

from __future__ import annotations

from markupsafe import Markup, escape

Child = str | int | float | Markup
Value = str | int | float | None


def tag(element: str, *children: Child, **attributes: Value) -> Markup:
    """`tag("g", ..., class_="node")`: an underscore in a name is a dash; None leaves one out."""
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = "".join(escape(child) for child in children)
    return Markup(f"<{element}{said}>{inner}</{element}>")  # noqa: S704  every part is escaped


def join(parts: list[Markup]) -> Markup:
    return Markup("").join(parts)


def picture(width: float, height: float, label: str, *children: Markup, class_: str) -> Markup:
    """A whole picture with a name for those who do not see it."""
    return tag(
        "svg",
        *children,
        viewBox=f"0 0 {_text(width)} {_text(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
        class_=class_,
    )


def titled(text: str) -> Markup:
    """What is shown while the pointer rests on it."""
    return tag("title", text)


def _text(value: Value) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
