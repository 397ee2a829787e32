"""Recovery: claim, scan, plan, restore, adopt."""

from lamina.recovery.manager import Recovered, RecoveryConfig, RecoveryManager
from lamina.recovery.scan import RecoverableSink, Scan
from lamina.recovery.state import LeftAside, RecoveredState, RecoveryReport

__all__ = [
    "LeftAside",
    "RecoverableSink",
    "Recovered",
    "RecoveredState",
    "RecoveryConfig",
    "RecoveryManager",
    "RecoveryReport",
    "Scan",
]
