"""Text that Spark parses in an expression: rows that can be read, and lines that cannot.

Every expression is made once: each would be a hundred calls into the JVM, in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it

UNREADABLE_LINE = "lamina: a row cannot be read in"
SHOWN = 200
TEXT, FILE = "_lamina_text", "_lamina_file"
BLANK = " \t\r\n"
_BYTE_ORDER_MARK = "\ufeff"
_ALL = (1 << 31) - 1


class TextRows:
    """Lines of `value`, in files whose names are the column *file*."""

    def __init__(
        self, options: Mapping[str, str], corrupt: str, file: str = "_metadata.file_path"
    ) -> None:
        """*options* of the format, in lower case; *corrupt* is a column that no source has."""
        self.options, self.corrupt, self.file = options, corrupt, file
        self._made: dict[str, Column] = {}

    def rows(self, text: DataFrame, columns: str, *, strict: bool = False) -> DataFrame:
        """The rows of all lines that can be read; and the other columns of *text*.

        If it is *strict*, the first line that cannot be read is an error that names its file.
        """
        beside = [name for name in text.columns if name not in ("value", self.file)]
        quoted = ["`" + name.replace("`", "``") + "`" for name in beside]
        kept = self._failing if strict else self._readable
        rows = self._once(f"rows {strict} {columns}", lambda: kept(columns))
        return self._lines(text, quoted).select(*quoted, rows).drop(self.corrupt)

    def bad_rows(self, text: DataFrame, columns: str) -> DataFrame:
        """The lines that cannot be read, with their files."""

        def bad() -> Column:
            return let(self._parsed(columns), self._is_bad)

        lines = self._lines(text).where(self._once(f"bad {columns}", bad))
        return lines.select(F.col(FILE).alias("file"), F.col(TEXT).alias("text"))

    # what a format says

    def _parsed(self, columns: str) -> Column:
        """The rows of a line, each with why it cannot be read."""
        raise AssertionError(f"{type(self).__name__} reads {columns}")

    def _is_text(self) -> Column:
        """Whether a line has anything to read."""
        return F.btrim(F.col(TEXT), F.lit(BLANK)) != ""

    # steps

    def _once(self, name: str, make: Callable[[], Column]) -> Column:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _lines(self, text: DataFrame, beside: Sequence[str] = ()) -> DataFrame:
        """Decoded, without a byte order mark; lines of nothing have no rows."""
        file = self._once("file", lambda: F.col(self.file).alias(FILE))
        lines = text.select(file, self._once("line", self._line), *beside)
        return lines.where(self._once("is text", self._is_text))

    def _line(self) -> Column:
        value = F.col("value")
        charset = self.options.get("encoding", self.options.get("charset", "UTF-8"))
        if charset.upper() not in ("UTF-8", "UTF8"):
            value = F.decode(value.cast("binary"), charset)
        marked = value.startswith(_BYTE_ORDER_MARK)
        return F.when(marked, F.substring(value, 2, _ALL)).otherwise(value).alias(TEXT)

    def _readable(self, columns: str) -> Column:
        def readable(rows: Column) -> Column:
            return F.when(self._is_bad(rows), F.slice(rows, 1, 0)).otherwise(rows)

        return F.inline(let(self._parsed(columns), readable))

    def _failing(self, columns: str) -> Column:
        shown = F.substring(F.col(TEXT), 1, SHOWN)
        said = F.concat_ws(" ", F.lit(UNREADABLE_LINE), self._quoted_file(), shown)

        def failing(rows: Column) -> Column:
            return F.when(self._is_bad(rows), F.raise_error(said)).otherwise(rows)

        return F.inline(let(self._parsed(columns), failing))

    def _quoted_file(self) -> Column:
        """As one word: a name may have spaces in it."""
        return F.replace(F.col(FILE), F.lit(" "), F.lit("%20"))

    def _is_bad(self, rows: Column) -> Column:
        return F.exists(rows, lambda row: row.isNull() | row[self.corrupt].isNotNull())


class CsvText(TextRows):
    """Lines of CSV, each a row."""

    def _is_text(self) -> Column:
        is_text = super()._is_text()
        comment = self.options.get("comment", "")
        if not comment:
            return is_text
        return is_text & ~F.col(TEXT).startswith(comment)

    def _parsed(self, columns: str) -> Column:
        left_out = ("header", "enforceschema", "linesep", "encoding", "charset", "multiline")
        options = {name: value for name, value in self.options.items() if name not in left_out}
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": self.corrupt}
        schema = f"{columns}, `{self.corrupt}` STRING"
        return F.array(F.from_csv(F.col(TEXT), schema, options))


def let(value: Column, use: Callable[[Column], Column]) -> Column:
    """*use* of a value that is computed once."""
    return F.get(F.transform(F.array(value), use), F.lit(0))
