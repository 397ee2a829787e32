"""The skeleton of a source whose epochs the driver writes into a file of changes.

The database has the same changes for as long as they are needed, so nothing of a plan survives its
process (decision 0032).
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pyarrow as pa

from lamina.connectors.changes.journal import JournalWriter, Versions
from lamina.connectors.changes.types import arrow_type
from lamina.connectors.keyed_options import KEYS
from lamina.connectors.kinds import SourceContext
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits, SourceMemory
from lamina.errors import Refused, StoreUnavailable
from lamina.state.schema import StateSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEMORY_BYTES = 256 << 20
"""Of the changes of an epoch; what is more goes to files until it is folded."""


class JournalSource(ABC):
    """One table of a database."""

    def __init__(self, context: SourceContext) -> None:
        self._context, source = context, context.source
        declared = {column.name.lower(): column.name for column in source.columns}
        self._keys = [declared[key.lower()] for key in context.given.columns(KEYS.name)]
        self._schema = pa.schema([(each.name, arrow_type(each.type)) for each in source.columns])
        self._planned: SourceRange | None = None
        self._memory: SourceMemory | None = None  # of a source that has asked for one

    @property
    def name(self) -> str:
        return self._context.source.name

    @property
    def memory(self) -> StateSchema | None:
        return None

    def initial(self) -> Offset:
        return {}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        """The same range again, while it is not committed: the reader is behind it by now."""
        self._memory = memory
        if self._planned is not None and self._planned.start == start:
            return self._planned
        self._planned = None
        was_reading = self._is_reading
        try:
            planned = self._plan(start, limits)
        except StoreUnavailable:
            if not was_reading:
                raise
            planned = self._plan(start, limits)  # the connection was lost since the last epoch
        if planned.start != planned.end:
            self._planned = planned
        return planned

    def confirm(self, planned: SourceRange) -> None:
        """What was read is in a file of this process."""
        if planned.start != planned.end and not Path(planned.data.path).exists():
            message = f"the file with the changes of {self.name!r} was deleted while it was read"
            raise Refused(message, where=planned.data.path, advice="Start the pipeline again")

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        from lamina.connectors.changes.frames import changes_frame  # noqa: PLC0415  an extra

        return changes_frame(spark, self._context.source, planned.data, self._context.files)

    def close(self) -> None:
        """Let go of the connection and of the files; a plan after that begins again."""
        self._disconnect()
        self._planned = None
        self._forget_files()

    # what each database has of its own

    @property
    @abstractmethod
    def _is_reading(self) -> bool:
        """Whether a connection is there that was read from before."""

    @abstractmethod
    def _plan(self, start: Offset, limits: Limits) -> SourceRange: ...

    @abstractmethod
    def _disconnect(self) -> None: ...

    # files

    def _journal(self, name: str) -> JournalWriter:
        return JournalWriter(self._folder / f"{name}.parquet", self._schema)

    def _versions(self) -> Versions:
        return Versions(self._folder / "large", self._keys, MEMORY_BYTES)

    def _forget_files(self) -> None:
        """Those of epochs that are over."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @cached_property
    def _folder(self) -> Path:
        """For files of this process."""
        folder = self._context.scratch
        return Path(mkdtemp(prefix="lamina-")) if folder is None else folder
