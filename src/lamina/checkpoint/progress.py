"""Progress reports of long work: the command line draws them, a library user may ignore them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int
    unit: str  # "bytes" or "objects"
    what: str  # what was just finished


Report: TypeAlias = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """Report to nobody."""
