"""What tests of programs that use Lamina need: faults on order, and a clock that stands still."""

from lamina.testing.clock import ManualClock
from lamina.testing.faulty import Fault, FaultKind, FaultyStore, Killed

__all__ = ["Fault", "FaultKind", "FaultyStore", "Killed", "ManualClock"]
