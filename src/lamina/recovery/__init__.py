"""Recovery: claim, scan, plan, restore, adopt.

manager    all of it, in this order
identity   before the claim: to whom home, store and sinks belong
scan       what home, store and sinks hold; the plan itself is protocol.recovery
rehearsal  what a start would do, without claiming anything
operators  keyed state from checkpoint and log
state      what a recovery gives back; report says it for people
"""

from typing import TYPE_CHECKING

from lamina.lazy import exports

if TYPE_CHECKING:
    from lamina.recovery.config import RecoveryConfig
    from lamina.recovery.manager import Recovered, RecoveryManager
    from lamina.recovery.rehearsal import Proof, Rehearsal, rehearse
    from lamina.recovery.scan import RecoverableSink, Scan
    from lamina.recovery.state import LeftAside, RecoveredState, RecoveryReport
else:
    __getattr__ = exports(
        __name__,
        {
            "lamina.recovery.config": "RecoveryConfig",
            "lamina.recovery.manager": "Recovered RecoveryManager",
            "lamina.recovery.rehearsal": "Proof Rehearsal rehearse",
            "lamina.recovery.scan": "RecoverableSink Scan",
            "lamina.recovery.state": "LeftAside RecoveredState RecoveryReport",
        },
    )

__all__ = [
    "LeftAside",
    "Proof",
    "RecoverableSink",
    "Recovered",
    "RecoveredState",
    "RecoveryConfig",
    "RecoveryManager",
    "RecoveryReport",
    "Rehearsal",
    "Scan",
    "rehearse",
]
