"""What one call of the command shares, and how a command says that it has answered already."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from lamina.errors import LaminaError


@dataclass(frozen=True, slots=True)
class Session:
    """What all stores of one command share: setting *cancel* ends their waiting."""

    cancel: threading.Event = field(default_factory=threading.Event)


class Answered(Exception):
    """A command failed after its answer: the error ends it, but is no answer of its own."""

    def __init__(self, error: LaminaError) -> None:
        super().__init__(str(error))
        self.error = error
