"""What an engine is given: a compiled pipeline and settings; and what it tells of each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lamina.engine.model import OperatorPlan
from lamina.engine.planning import Timing
from lamina.engine.ports import Limits, Output
from lamina.format.commit import StagedFile
from lamina.format.pipeline_record import Owner, PipelineRecord
from lamina.pipeline.model import Emit


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream as the engine sees it: what it reads, and the state it keeps."""

    name: str
    inputs: tuple[str, ...]  # sources and streams
    sources: frozenset[str]  # all that its rows come from: its watermark is the least of theirs
    operators: Mapping[str, OperatorPlan] = field(default_factory=dict)
    output: Output = field(default_factory=Output)
    block_of: str = ""  # the stream that a person has written, if this is a block of it
    late_of: str = ""  # the stream whose late rows it has: it runs when there are some
    lateness_us: int = 0  # its watermark is this much before that of its sources
    looks_up: frozenset[str] = frozenset()  # sources that a join looks up in their current state
    is_counted: bool = True  # no: its late rows are those that another block counts

    @property
    def has_window(self) -> bool:
        return any(operator.time is not None for operator in self.operators.values())

    @property
    def closes_windows(self) -> bool:
        """Whether rows come out when the watermark has passed their time, not before."""
        return any(
            operator.time is not None and operator.emit is Emit.ON_WINDOW_CLOSE
            for operator in self.operators.values()
        )


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """A pipeline, compiled: streams in the order they run."""

    pipeline: str
    pipeline_hash: str
    streams: tuple[StreamPlan, ...]
    sinks: Mapping[str, str]  # sink -> stream
    delays_us: Mapping[str, int]  # of sources with a watermark
    by_clock: frozenset[str] = frozenset()  # those whose event time is the time of the epoch
    settings: Mapping[str, str] = field(default_factory=dict)  # what results depend on (R9)
    definitions: Mapping[str, str] = field(default_factory=dict)  # name -> digest of what it is
    connectors: Mapping[str, str] = field(default_factory=dict)  # source -> what it is read with
    changing: frozenset[str] = frozenset()  # sources whose rows are changes
    bad_rows: frozenset[str] = frozenset()  # streams of rows that could not be read

    def when_planned(self, source: tuple[str, object]) -> tuple[bool, str]:
        """By this sources are put in order; those that rows are looked up in come last.

        So what was in a table before an event was written is planned with the event, or before it.
        """
        name, _ = source
        return any(name in stream.looks_up for stream in self.streams), name

    @property
    def delays_by_rows(self) -> dict[str, int]:
        """The delays of sources whose event time comes with the rows: it may be a wrong one."""
        return {name: each for name, each in self.delays_us.items() if name not in self.by_clock}

    def record(self, sources: Iterable[str]) -> PipelineRecord:
        """What is written down of it; the id is found, or made, when it is claimed."""
        streams = (stream.name for stream in self.streams)
        return PipelineRecord(
            Owner(name=self.pipeline),
            self.pipeline_hash,
            *(
                {name: self.definitions.get(name, "") for name in names}
                for names in (sources, streams, self.sinks)
            ),
        )

    @property
    def outputs(self) -> dict[str, Output]:
        """What each sink gets."""
        streams = {stream.name: stream.output for stream in self.streams}
        return {sink: streams[stream] for sink, stream in self.sinks.items()}

    @property
    def windowed_sources(self) -> frozenset[str]:
        """What streams have windows over."""
        return frozenset(s for each in self.streams if each.has_window for s in each.sources)

    @property
    def timing(self) -> Timing:
        """What it says of event time."""
        timed = frozenset(self.delays_us)
        return Timing(self.delays_us, frozenset(each.sources & timed for each in self.streams))

    def lateness_of(self, stream: StreamPlan) -> StreamPlan:
        """The stream that says what is late: itself, unless it has the late rows of another."""
        return next((each for each in self.streams if each.name == stream.late_of), stream)

    def follows_windows(self, stream: StreamPlan) -> bool:
        """Whether it reads rows of windows that close by the same watermark, in the same epoch.

        They are late only by the one before: with it, all that they close up to was closed.
        """
        before = [each for each in self.streams if each.name in stream.inputs]
        return any(each.closes_windows or self.follows_windows(each) for each in before)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    partitions: int = 1
    limits: Limits = field(default_factory=Limits)
    checkpoint_epochs: int = 10  # a checkpoint after this many; 0: not because of their number
    checkpoint_s: float | None = None  # a checkpoint when the last one is this old; None: no
    behind_max: int = 8  # epochs that a sink may lack before it holds the pipeline
    max_ahead_us: int | None = None
    retain: int = 3
    reuse_state: frozenset[str] = frozenset()  # streams whose changed SELECT a person has accepted
    drop_state: frozenset[str] = frozenset()  # what is kept aside of streams that are gone
    unsaved_max: int = 100  # epochs that a checkpoint may be overdue before it holds the pipeline
    looks_ahead: bool = False  # run the next epoch while the COMMIT of this one is being written
    drain: bool = False  # when everything is read, nothing more is to come: all windows close


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What one epoch did, for people."""

    epoch: int
    rows: Mapping[str, int]  # read, by source
    rows_out: Mapping[str, int]  # by sink
    late: int
    watermark: int | None
    seconds: float
    sinks_behind: int
    without_time: int = 0  # rows that were left out because they have no event time
    keys: int = 0  # rows of all runs of the state: at least its keys
    ahead: int = 0  # rows too far ahead to move the watermark
    gaps_us: Mapping[str, int] = field(default_factory=dict)  # that watermarks have jumped over
    staged: tuple[StagedFile, ...] = ()  # its output, as it was committed
    notes: tuple[str, ...] = ()  # what sources have to say
    late_sides: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Late rows of joins, by block: `left` and `right`. They are in *late*, too."""
    bad: int = 0  # rows that could not be read and were put aside
    generation: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds (engine/phases.py)
    streams: Mapping[str, float] = field(default_factory=dict)  # seconds; parts of `run`
    watermarks: Mapping[str, int] = field(default_factory=dict)  # of sources
    state_runs: int = 0
    state_bytes: int = 0
    wal_bytes: int = 0  # runs and small output; not the COMMIT
    saved_epoch: int = 0  # that of the last checkpoint; 0 before the first
    saved_id: str = ""
    sinks: Mapping[str, int] = field(default_factory=dict)  # the last epoch that each has
    sink_errors: Mapping[str, str] = field(default_factory=dict)  # why one is behind


FailPoint = Callable[[str], None]
