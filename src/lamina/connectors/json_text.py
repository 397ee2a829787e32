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

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of Spark's users have it
from pyspark.sql.types import StructField, StructType

from lamina.connectors.text_rows import BLANK, FILE, SHOWN, TEXT, TextRows

SEVERAL = "lamina: more than one JSON value in"
_UNREADABLE = "!"
_OF_TEXT = ("linesep", "encoding", "charset")


class JsonText(TextRows):
    """The text of JSON files, read with the *options* of Spark's JSON reader, in lower case."""

    def __init__(
        self,
        options: Mapping[str, str],
        mark: str,
        corrupt: str,
        file: str = "_metadata.file_path",
    ) -> None:
        """*mark* is drawn by chance."""
        super().__init__(options, corrupt, file)
        self.mark = mark

    def no_rest(self, spark: SparkSession, paths: Sequence[str], schema: StructType) -> DataFrame:
        """No rows, of any schema; whoever reads them fails at a line with more than one value.

        A line whose first value cannot be read is left to Spark's reader, which says why.
        """
        lines = self._lines(self.reader(spark).load(list(paths)))
        lines = lines.where(self._once("fails", self._fails))
        return lines.select(*(self._null(field) for field in schema))

    def reader(self, spark: SparkSession) -> DataFrameReader:
        """Files as text, by lines or as a whole."""
        reader = spark.read.format("text")
        reader = reader.option("wholetext", self.options.get("multiline", "false"))
        for name in _OF_TEXT:
            if name in self.options:
                reader = reader.option(name, self.options[name])
        return reader

    # steps

    def _null(self, field: StructField) -> Column:
        key = f"null {field.name} {field.dataType.simpleString()}"
        return self._once(key, lambda: F.lit(None).cast(field.dataType).alias(field.name))

    def _fails(self) -> Column:
        """False for every line but one with a rest: that raises an error."""
        text = F.col(TEXT)
        said = F.concat_ws(" ", F.lit(SEVERAL), F.col(FILE), F.substring(text, 1, SHOWN))
        fails = F.when(self.is_one_value(text) | ~self._begins_well(text), F.lit(False))
        return fails.otherwise(F.raise_error(said).cast("boolean"))

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
        schema = f"`{TEXT}` STRING, `{self.corrupt}` STRING"
        options = {**self.parsing, "columnNameOfCorruptRecord": self.corrupt}
        value = F.from_json(text, schema, options)
        return value.isNotNull() & value[self.corrupt].isNull()

    def _parsed(self, columns: str) -> Column:
        """The rows of a line, each with why it cannot be read; a list of values is their rows."""
        text = F.col(TEXT)
        values = F.from_json(text, "array<string>", self.parsing)
        unreadable = F.array(F.lit(_UNREADABLE))
        values = (
            F.when(~self.is_one_value(text), unreadable)
            .when(F.btrim(text, F.lit(BLANK)).startswith("["), F.coalesce(values, unreadable))
            .otherwise(F.array(text))
        )
        options = {**self.parsing, "columnNameOfCorruptRecord": self.corrupt}
        schema = f"{columns}, `{self.corrupt}` STRING"
        return F.transform(values, lambda value: F.from_json(value, schema, options))

    @property
    def parsing(self) -> dict[str, str]:
        """The options for `from_json`."""
        parsing = {n: v for n, v in self.options.items() if n not in (*_OF_TEXT, "multiline")}
        return {**parsing, "mode": "PERMISSIVE"}
