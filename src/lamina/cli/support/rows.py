"""The rows of a RUN as text and JSON; the page has them, too (lamina.inspect.cells)."""

from lamina.inspect.cells import row_shapes, row_texts, schema_shape, schema_text

__all__ = ["row_shapes", "row_texts", "schema_shape", "schema_text"]
