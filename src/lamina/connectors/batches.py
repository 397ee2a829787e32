"""The batches of a Structured Streaming query as a source, one batch an epoch.

Spark gives a batch again after a crash, and says only its number. So the offset is the number of
the last batch with a fingerprint of its rows, and the id of the query: a batch that was decided is
passed over if it is the same one, and named if it is another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.connectors.kinds import DeclaredOption, SourceContext, SourceKind
from lamina.connectors.options import bad_option, option_of
from lamina.engine.model import Offset, SourceRange
from lamina.engine.ports import Limits, SourceMemory
from lamina.errors import Diverged, Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lamina.state.schema import StateSchema

BATCHES = "batches"
BATCH, QUERY, ROWS, HASH = "batch", "query", "rows", "hash"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The rows of a batch, in whatever order they come."""

    rows: int
    hash: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What a query has called us with."""

    number: int
    query: str  # its id; empty if Spark does not say
    content: Fingerprint
    view: str  # a view that all sessions see

    @property
    def offset(self) -> Offset:
        content = {ROWS: str(self.content.rows), HASH: str(self.content.hash)}
        return {BATCH: str(self.number), QUERY: self.query, **content}


class BatchSource:
    """Has at most one batch at a time: the one that was offered last."""

    memory: StateSchema | None = None

    def __init__(self, name: str, *, query: str = "") -> None:
        """*query* is the id of a query that may take over from the one before."""
        self.name = name
        self._may_follow = query
        self._offered: Batch | None = None

    def itself(self) -> BatchSource:
        """How the declaration of a source gets hold of this one."""
        return self

    def offer(self, batch: Batch | None) -> None:
        """What the next epoch reads; None: nothing."""
        self._offered = batch

    def initial(self) -> Offset:
        return {}

    def plan(self, start: Offset, limits: Limits, memory: SourceMemory | None) -> SourceRange:
        del limits, memory  # a batch is never divided
        offered = self._offered
        if offered is None or (BATCH in start and self._is_known(start, offered)):
            return SourceRange(self.name, start, start)
        return SourceRange(self.name, start, offered.offset, offered)

    def frame(self, spark: SparkSession, planned: SourceRange) -> DataFrame:
        batch = planned.data
        assert isinstance(batch, Batch), "an empty range is not read"
        return spark.table(batch.view)

    def confirm(self, planned: SourceRange) -> None:
        """The batch is the query's, and stays as it was offered."""

    def acknowledge(self, offset: Offset) -> None:
        """Spark keeps its own offsets."""

    def _is_known(self, last: Offset, batch: Batch) -> bool:
        """Whether *batch* was decided before. Raises unless it is that one, or the next."""
        number, query = int(last[BATCH]), last.get(QUERY, "")
        if query != batch.query and batch.query and batch.query == self._may_follow:
            return False  # a person has said so; from now on it is the query of this sink
        if query != batch.query:
            raise Refused(
                f"batch {batch.number} is of the query {batch.query or '(unknown)'}, and this sink "
                f"has batch {number} of the query {query or '(unknown)'}",
                advice="Another query writes to this sink, or this one was started with a new "
                "checkpoint location and reads again what the sink has. Use the old checkpoint "
                "location; or, if the new query begins where the old one ended, give "
                f"lamina.spark.sink(query={batch.query!r}); or use a new sink and a new home",
            )
        if batch.number > number + 1:
            raise Refused(
                f"batch {batch.number} comes after batch {number}: those between were never given",
                advice="Offsets or commits of the query's checkpoint were deleted or restored: "
                "`lamina verify-spark` shows them",
            )
        if batch.number < number:
            raise Refused(
                f"batch {batch.number} comes again, and the sink has batch {number}",
                advice="The query's checkpoint is older than the sink: it was restored from a "
                "copy, or set back. Restore the newer one, or use a new sink and a new home",
            )
        if batch.number == number + 1:
            return False
        if dict(last) != dict(batch.offset):
            raise Diverged(
                f"batch {number} comes again with other rows: {batch.content.rows} rows, and it "
                f"was published with {last[ROWS]}",
                advice="The query is not deterministic (rand(), current_timestamp(), a table that "
                "has changed), its text was changed, or its source was. The sink keeps what it "
                "has. Start a query that gives the same rows again, or compare and give the query "
                "a new checkpoint location that begins behind this batch",
            )
        return True


def _check(context: SourceContext) -> None:
    option = option_of(context.source, BATCHES)
    if option is None or option.made is None:
        message, file = "has the format of lamina.spark.sink, which makes it", context.given.file
        raise bad_option(context.source, message, file, "Use one of the other formats")


def _open(context: SourceContext) -> BatchSource:
    option = option_of(context.source, BATCHES)
    assert option is not None
    assert option.made is not None
    made = option.made()
    assert isinstance(made, BatchSource)
    return made


KIND = SourceKind(
    "structured_streaming_batches",
    "The batches of a Structured Streaming query: `lamina.spark.sink`",
    open=_open,
    check=_check,
    options=(DeclaredOption(BATCHES, "What the query gives", required=True),),
)
