"""Market trades, generated: the same every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.connectors.generators import Made, Numbered, chosen, numbers
from lamina.connectors.kinds import DeclaredOption, OptionType, SourceContext, SourceKind
from lamina.engine.model import SourceRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Trades(Numbered):
    """Market trades."""

    def __init__(self, context: SourceContext) -> None:
        source, given = context.source, context.given
        super().__init__(source.name, given.number("rows"))
        made = trades(given.number("symbols"), given.number("every_us"))
        self._columns = chosen(source, made, file=given.file)

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        return numbers(spark, planned).selectExpr(*self._columns)


def trades(symbols: int, every_us: int) -> dict[str, Made]:
    return {
        "symbol": Made("STRING", f"concat('S', CAST(pmod(xxhash64(id), {symbols}) AS STRING))"),
        "price": Made(
            "DECIMAL(12,2)", "CAST(10 + pmod(xxhash64(id, 1), 9000) / 100 AS DECIMAL(12, 2))"
        ),
        "volume": Made("BIGINT", "CAST(1 + pmod(xxhash64(id, 2), 500) AS BIGINT)"),
        "ts": Made("TIMESTAMP", f"timestamp_micros(1700000000000000 + id * {every_us})"),
    }


TRADES = SourceKind(
    "trades",
    "Generated trades, the same every time: `symbol`, `price`, `volume`, `ts`",
    open=Trades,
    check=Trades,
    options=(
        DeclaredOption("rows", "Number of trades", OptionType.NUMBER, 10_000, least=0),
        DeclaredOption("symbols", "Number of symbols", OptionType.NUMBER, 20),
        DeclaredOption(
            "every_us", "Microseconds between trades", OptionType.NUMBER, 50_000, least=0
        ),
    ),
)
