"""A JSON line must be exactly one value; with `multiLine` a whole file must be.

Spark's reader parses the first value of a line and looks no further: of `{..}{..}` and `{..} rest`
what follows would be lost. So beside it the lines are read as text and looked at (`no_rest`), in
the same job. Where bad rows are kept, a line with a rest must not count in part: then the lines
are parsed by `from_json`, which is the same parser, and costs twice as much (`rows`, `bad_rows`).

Whether a line is one value is found out in the JVM, cheapest first. `}` is only at the end of most
lines. Else a mark is put behind the line, in a list of both: if the mark is the second element, the
first was all of the line. The mark is random, so no line can contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import StructField, StructType

SEVERAL = "lamina: more than one JSON value in"
SHOWN = 200
_BLANK = " \t\r\n"
_BYTE_ORDER_MARK = "\ufeff"
_TEXT, _FILE = "_lamina_text", "_lamina_file"
_UNREADABLE = "!"
_ALL = (1 << 31) - 1
_OF_TEXT = ("linesep", "encoding", "charset")


class JsonText:
    """The text of JSON files, read with the *options* of Spark's JSON reader, in lower case.

    Every expression is made once: each would be a hundred calls into the JVM, in every epoch.
    """

    def __init__(self, options: Mapping[str, str], mark: str, corrupt: str) -> None:
        """*mark* is drawn by chance, *corrupt* a column that no source has."""
        self.options, self.mark, self.corrupt = options, mark, corrupt
        self._made: dict[str, Column] = {}

    def no_rest(self, spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
        """No rows, of any schema; whoever reads them fails at a line with more than one value.

        A line whose first value cannot be read is left to Spark's reader, which says why.
        """
        lines = self._lines(self.reader(spark).load(list(paths)))
        lines = lines.where(self._once("fails", self._fails))
        return lines.select(*(self._null(field) for field in schema))

    def rows(self, text: DataFrame, columns: str) -> DataFrame:
        """The rows of all lines that can be read; and the other columns of *text*."""
        beside = [name for name in text.columns if name != "value"]
        rows = self._once(f"rows {columns}", lambda: self._readable(columns))
        return self._lines(text, beside).select(*beside, rows).drop(self.corrupt)

    def bad_rows(self, text: DataFrame, columns: str) -> DataFrame:
        """The lines that cannot be read, with their files."""

        def bad() -> Column:
            return _let(self._parsed(columns), self._is_bad)

        lines = self._lines(text).where(self._once(f"bad {columns}", bad))
        return lines.select(F.col(_FILE).alias("file"), F.col(_TEXT).alias("text"))

    def reader(self, spark: SparkSession) -> DataFrameReader:
        """Files as text, by lines or as a whole."""
        reader = spark.read.format("text")
        reader = reader.option("wholetext", self.options.get("multiline", "false"))
        for name in _OF_TEXT:
            if name in self.options:
                reader = reader.option(name, self.options[name])
        return reader

    # steps

    def _once(self, name: str, make: Callable[[], Column]) -> Column:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _null(self, field: StructField) -> Column:
        key = f"null {field.name} {field.dataType.simpleString()}"
        return self._once(key, lambda: F.lit(None).cast(field.dataType).alias(field.name))

    def _fails(self) -> Column:
        """False for every line but one with a rest: that raises an error."""
        text = F.col(_TEXT)
        said = F.concat_ws(" ", F.lit(SEVERAL), F.col(_FILE), F.substring(text, 1, SHOWN))
        fails = F.when(self.is_one_value(text) | ~self._begins_well(text), F.lit(False))
        return fails.otherwise(F.raise_error(said).cast("boolean"))

    def _readable(self, columns: str) -> Column:
        def readable(rows: Column) -> Column:
            return F.when(self._is_bad(rows), F.slice(rows, 1, 0)).otherwise(rows)

        return F.inline(_let(self._parsed(columns), readable))

    def _lines(self, text: DataFrame, beside: Sequence[str] = ()) -> DataFrame:
        """Decoded, without a byte order mark; lines of nothing have no rows."""
        file = self._once("file", lambda: F.col("_metadata.file_path").alias(_FILE))
        lines = text.select(file, self._once("line", self._line), *beside)
        return lines.where(
            self._once("is text", lambda: F.btrim(F.col(_TEXT), F.lit(_BLANK)) != "")
        )

    def _line(self) -> Column:
        value = F.col("value")
        charset = self.options.get("encoding", self.options.get("charset", "UTF-8"))
        if charset.upper() not in ("UTF-8", "UTF8"):
            value = F.decode(value.cast("binary"), charset)
        marked = value.startswith(_BYTE_ORDER_MARK)
        return F.when(marked, F.substring(value, 2, _ALL)).otherwise(value).alias(_TEXT)

    def is_one_value(self, text: Column) -> Column:
        """Whether a text is one JSON value and nothing more; of one that begins like none: any."""
        closes_at_its_end = F.octet_length(F.substring_index(text, "}", 1)) == (
            F.octet_length(F.rtrim(text)) - 1
        )
        flat = text.startswith("{") & closes_at_its_end
        # A line may end in a comment, if these are allowed: hence the new line.
        pair = F.concat(F.lit("["), text, F.lit(f'\n,"{self.mark}"]'))
        plain = F.get_json_object(pair, "$[1]") == self.mark
        pair = F.concat(F.lit("["), text, F.lit(f'\n,{{"mark":"{self.mark}"}}]'))
        pairs = F.from_json(pair, "array<struct<mark:string>>", self.parsing)
        by_its_options = F.get(pairs, F.lit(1))["mark"] == self.mark
        return flat | F.coalesce(plain, F.lit(False)) | F.coalesce(by_its_options, F.lit(False))

    def _begins_well(self, text: Column) -> Column:
        """Whether the first value of a line can be read; asked of few."""
        schema = f"`{_TEXT}` STRING, `{self.corrupt}` STRING"
        options = {**self.parsing, "columnNameOfCorruptRecord": self.corrupt}
        value = F.from_json(text, schema, options)
        return value.isNotNull() & value[self.corrupt].isNull()

    def _parsed(self, columns: str) -> Column:
        """The rows of a line, each with why it cannot be read; a list of values is their rows."""
        text = F.col(_TEXT)
        values = F.from_json(text, "array<string>", self.parsing)
        unreadable = F.array(F.lit(_UNREADABLE))
        values = (
            F.when(~self.is_one_value(text), unreadable)
            .when(F.btrim(text, F.lit(_BLANK)).startswith("["), F.coalesce(values, unreadable))
            .otherwise(F.array(text))
        )
        options = {**self.parsing, "columnNameOfCorruptRecord": self.corrupt}
        schema = f"{columns}, `{self.corrupt}` STRING"
        return F.transform(values, lambda value: F.from_json(value, schema, options))

    def _is_bad(self, rows: Column) -> Column:
        return F.exists(rows, lambda row: row.isNull() | row[self.corrupt].isNotNull())

    @property
    def parsing(self) -> dict[str, str]:
        """The options for `from_json`."""
        parsing = {n: v for n, v in self.options.items() if n not in (*_OF_TEXT, "multiline")}
        return {**parsing, "mode": "PERMISSIVE"}


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """*use* of a value that is computed once."""
    return F.get(F.transform(F.array(value), use), F.lit(0))
