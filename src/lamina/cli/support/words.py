"""Times, sizes and names as people read them; the page has them, too (lamina.front.words)."""

from lamina.front.words import begun, counted, printable, size, utc

__all__ = ["begun", "counted", "printable", "size", "utc"]
