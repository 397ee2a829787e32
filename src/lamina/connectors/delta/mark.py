"""The mark of a sink in a Delta table: application transactions, and properties of the table.

    lamina.generation        application transaction: who may write
    lamina.epoch             application transaction: the last epoch that is in the table
    lamina.digest.1 to .5    the SHA-256 of its COMMIT, thirteen hexadecimal digits each
    lamina.pipeline.id       property of the table: whose it is, for ever
    lamina.pipeline.name     property of the table: what that pipeline was called last
    lamina.sink              property of the table: the sink that writes it; older marks lack it

A version of an application transaction is one whole number, hence the pieces; 52 bits go through
every reader of JSON unharmed. Transactions are kept by checkpoints of the log, and by vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lamina.errors import Refused
from lamina.format.commit import Point
from lamina.format.pipeline_record import Owner
from lamina.protocol.sinks import SinkPosition

GENERATION = "lamina.generation"
EPOCH = "lamina.epoch"
PIPELINE_ID = "lamina.pipeline.id"
PIPELINE_NAME = "lamina.pipeline.name"
SINK = "lamina.sink"

_DIGITS = 13
_SIZE = 64
_PIECES = tuple((f"lamina.digest.{1 + start // _DIGITS}", start) for start in range(0, _SIZE, 13))


def transactions(generation: int, point: Point | None) -> dict[str, int]:
    """The mark by application id; before the first epoch it says only who has claimed the table."""
    if point is None:
        return {GENERATION: generation}
    assert len(point.digest) == _SIZE, point.digest
    digest = {name: int(point.digest[at : at + _DIGITS], 16) for name, at in _PIECES}
    return {GENERATION: generation, EPOCH: point.epoch, **digest}


def properties(pipeline: Owner, sink: str) -> dict[str, str]:
    return {PIPELINE_ID: pipeline.id, PIPELINE_NAME: pipeline.name, SINK: sink}


def check_sink(named: str, sink: str, where: str) -> None:
    """A table takes the rows of one sink: two would move one mark, and lose rows of one of them."""
    if named not in ("", sink):
        raise Refused(
            f"the table belongs to the sink {named!r}, not to {sink!r}",
            where=where,
            advice=f"Give each sink a table of its own. If {named!r} was renamed, set the table "
            f"property {SINK} to {sink!r}",
        )


def read_position(
    version_of: Callable[[str], int | None], configuration: Mapping[str, str]
) -> SinkPosition:
    """What a table says, by its transactions and its properties."""
    owner = Owner(configuration.get(PIPELINE_ID) or "", configuration.get(PIPELINE_NAME) or "")
    epoch = version_of(EPOCH)
    point = None if epoch is None else Point(epoch, _digest(version_of))
    return SinkPosition(owner, version_of(GENERATION) or 0, point)


def _digest(version_of: Callable[[str], int | None]) -> str:
    sizes = {name: min(_DIGITS, _SIZE - start) for name, start in _PIECES}
    return "".join(f"{version_of(name) or 0:0{size}x}" for name, size in sizes.items())
