"""What validation can find in a manifest: every code, once, as data.

Codes are stable and never used again for something else. A rule has a second severity for files
that LaminarDB wrote, because they lack what it never recorded; None there means: not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    severity: Severity | None  # None: only files of LaminarDB can have it
    legacy: Severity | None
    title: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or worth knowing, and where it is."""

    severity: Severity
    code: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity} {self.code} {self.field}: {self.message}"


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

_RULES = (
    # identity
    Rule("M001", None, _E, "the checkpoint id is 0"),
    Rule("M002", _E, _E, "the epoch is 0"),
    Rule("M003", _W, _W, "the creation time is missing"),
    Rule("M004", _E, None, "the generation is 0"),
    Rule("M005", _E, _E, "a checkpoint is its own parent"),
    Rule("M006", _E, _E, "the parent epoch is not below the epoch"),
    Rule("M007", _E, _E, "a digest of the parent without its epoch, or without an own digest"),
    Rule("M008", None, _N, "the file was written by LaminarDB"),
    Rule("M009", _E, _E, "a digest that is not a SHA-256 in lower-case hex"),
    Rule("M010", _E, _E, "a pipeline hash that is not a hash"),
    # topology and time
    Rule("M011", _E, _E, "a name is listed twice"),
    Rule("M012", _W, _W, "names are not sorted"),
    Rule("M013", _E, _E, "offsets of a source that is not part of the topology"),
    Rule("M014", _W, _N, "a source without offsets would start from the beginning"),
    Rule("M015", _E, _E, "a watermark of a source that is not part of the topology"),
    Rule("M016", _E, _E, "offsets of a later epoch than the manifest's"),
    Rule("M017", _N, _N, "offsets of an earlier epoch than the manifest's"),
    Rule("M018", _E, _E, "the vnode count is 0"),
    Rule("M019", _E, _E, "the vnode count differs from the expected one"),
    Rule("M020", None, _W, "the vnode count was never recorded"),
    # sinks
    Rule("M021", _E, _E, "a sink with an epoch and without a status"),
    Rule("M022", _E, _W, "a sink is committed and has no epoch"),
    Rule("M023", _E, _E, "a sink that is not part of the topology"),
    Rule("M024", _E, _E, "a sink is ahead of the manifest"),
    Rule("M025", _W, _N, "the status of a sink contradicts its epoch"),
    Rule("M026", _W, _W, "a sink failed"),
    # operator states and the sidecar
    Rule("M031", _E, _E, "a state is both inline and external"),
    Rule("M032", _E, _E, "a state is neither inline nor external"),
    Rule("M033", _E, _E, "inline state is damaged"),
    Rule("M034", _E, _E, "an external state without a sidecar"),
    Rule("M035", _E, _E, "external states overlap"),
    Rule("M036", _E, _E, "an external state ends beyond the sidecar"),
    Rule("M037", _E, _W, "an external state that no digest covers"),
    Rule("M038", _W, _W, "a sidecar that no state refers to"),
    Rule("M039", _E, None, "the size of the sidecar is missing"),
    # runs
    Rule("M041", _E, _E, "a partition outside the vnodes"),
    Rule("M042", _E, _W, "a delta without a base"),
    Rule("M043", None, _E, "a delta without a base, and no parent that could have it"),
    Rule("M044", _E, _W, "a snapshot above other runs"),
    Rule("M045", _E, None, "runs overlap or are out of order"),
    Rule("M046", _E, _E, "a run ends before it begins"),
    Rule("M047", _E, _E, "a run of a later epoch than the manifest's"),
    Rule("M048", _E, None, "a path that does not say what its entry says"),
    Rule("M049", _E, _E, "one path for two entries"),
    Rule("M050", _E, _E, "a run is a file or inline, and exactly one of them"),
    Rule("M051", _E, _W, "a run without a digest"),
    Rule("M052", _E, None, "a file of another checkpoint, and no parent"),
    Rule("M053", _W, _W, "a partition without runs"),
    Rule("M054", _E, _E, "the size of an inline run is wrong"),
    Rule("M055", _E, None, "keyed state without its feature"),
    Rule("M056", _E, None, "keyed state with a P that is no power of two"),
    Rule("M057", _E, None, "a run of other vnodes than its partition's"),
    # paths and output
    Rule("M061", _E, _W, "an absolute path: no other host or store can follow it"),
    Rule("M062", _E, _E, "a path that leaves its folder or has forbidden characters"),
    Rule("M063", _E, _E, "output of a later epoch than the manifest's"),
    Rule("M064", _W, _W, "output that the sink has published already"),
    # what only LaminarDB wrote
    Rule("M071", None, _E, "incremental, and no parent"),
    Rule("M072", None, _W, "incremental: complete only with its parent"),
    Rule("M073", None, _E, "events in flight, which only LaminarDB could replay"),
    Rule("M074", None, _W, "a total that is not the sum"),
    Rule("M075", None, _E, "a vnode map outside the vnodes"),
)

RULES = {rule.code: rule for rule in _RULES}
assert len(RULES) == len(_RULES), "a code stands for one rule"
