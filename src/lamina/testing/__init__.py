"""For tests of programs that use Lamina: injected faults, and a clock that does not move."""

from lamina.testing.clock import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed

__all__ = ["Fault", "FaultKind", "FaultyStore", "Killed", "ManualClock"]
