"""A connector in one file: the lines of a text file that only grows. The offset is a position.

What makes it known is one row of the registry; here that is an entry point, as in any package.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lamina.connectors.kinds import DeclaredOption, OptionType, SourceContext, SourceKind
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits, SourceMemory
from lamina.errors import NotFound, Refused
from lamina.state.schema import StateSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTE = "byte"


class ToySource:
    """Lines of *file*, each a row of one column."""

    memory: StateSchema | None = None

    def __init__(self, context: SourceContext) -> None:
        self.name = context.source.name
        self.acknowledged: list[Offset] = []
        self._file = context.given.folder("path") / context.given.text("file")
        self._column = context.source.columns[0].name

    def initial(self) -> Offset:
        return {BYTE: "0"}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        lines = self._bytes()[int(start[BYTE]) :].splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")][: limits.rows]
        end = int(start[BYTE]) + sum(map(len, whole))
        return SourceRange(self.name, start, {BYTE: str(end)}, len(whole))

    def confirm(self, planned: SourceRange) -> None:
        if self._bytes()[: int(planned.end[BYTE])].count(b"\n") < planned.data:
            raise Refused(f"the file of {self.name!r} has been cut", where=str(self._file))

    def acknowledge(self, offset: Offset) -> None:
        self.acknowledged.append(offset)

    def read(self, planned: SourceRange) -> pa.Table:
        """The rows of a range; what a runner without Spark asks for."""
        lines = self._bytes()[int(planned.start[BYTE]) : int(planned.end[BYTE])].splitlines()
        return pa.table({self._column: pa.array([line.decode() for line in lines], pa.string())})

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        return spark.createDataFrame(self.read(planned))

    def _bytes(self) -> bytes:
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            raise NotFound("the file of a source is not there", where=str(self._file)) from None


TOY = SourceKind(
    "toy",
    "The lines of a text file that only grows",
    open=ToySource,
    options=(
        DeclaredOption("path", "The folder of the file", OptionType.INPUT, required=True),
        DeclaredOption("file", "Its name", default="lines"),
    ),
)


def install(folder: Path, *, name: str = "toy", value: str = f"{__name__}:TOY") -> None:
    """A package in *folder* that brings the connector along, as pip leaves it."""
    info = folder / f"lamina_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lamina-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lamina.connectors]\n{name} = {value}\n")
