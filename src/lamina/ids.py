"""Who is who: checkpoint ids, and names that people choose.

A CheckpointId is a UUIDv7. Its first 48 bits are milliseconds, so a listing reads in the order of
time, for people. It is identity, never order: what is newer is decided by epochs and the commit
log (guarantee 7).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import lru_cache, total_ordering

from lamina.errors import UsageError

_VERSION_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_MILLISECONDS_MAX = (1 << 48) - 1
_LOW_62_BITS = (1 << 62) - 1


def fold(name: str) -> str:
    """The name of a source, stream or sink as it is compared: case does not tell names apart."""
    return name.lower()


@total_ordering
@dataclass(frozen=True, slots=True)
class CheckpointId:
    """A UUIDv7; its text sorts like its time."""

    uuid: uuid.UUID

    def __post_init__(self) -> None:
        if self.uuid.version != 7 or self.uuid.variant != uuid.RFC_4122:
            raise UsageError(f"a checkpoint id is a UUID of version 7, not {self.uuid}")

    @classmethod
    def parse(cls, text: str) -> CheckpointId:
        """Read the hyphenated lower-case form; every other spelling is refused."""
        return _parse(text)

    @classmethod
    def from_parts(cls, milliseconds: int, random: int) -> CheckpointId:
        """Build an id from a Unix time and 74 random bits."""
        if not 0 <= milliseconds <= _MILLISECONDS_MAX:
            raise UsageError(f"the time {milliseconds} ms does not fit into a UUIDv7")
        assert 0 <= random < 1 << 74, "a UUIDv7 has room for 74 random bits"
        high = (random >> 62) << 64
        value = (milliseconds << 80) | _VERSION_7 | high | _VARIANT | (random & _LOW_62_BITS)
        return cls(uuid.UUID(int=value))

    @property
    def milliseconds(self) -> int:
        """The Unix time at which the id was made, by the clock of whoever made it."""
        return self.uuid.int >> 80

    def __lt__(self, other: CheckpointId) -> bool:
        return self.uuid < other.uuid

    def __str__(self) -> str:
        return str(self.uuid)


@lru_cache(maxsize=8192)
def _parse(text: str) -> CheckpointId:
    """Kept: a log of a thousand checkpoints names each of them in every entry with its state."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        raise UsageError(f"not a checkpoint id: {text[:80]!r}") from None
    if str(value) != text:
        raise UsageError(f"not the canonical form of a checkpoint id: {text[:80]!r}")
    return CheckpointId(value)
