"""What a runner is given for one stream and epoch: its rows, its state, and what counts as late."""

from __future__ import annotations

from collections.abc import Mapping

from lamina.engine.model import OperatorWork, StreamResult, StreamWork
from lamina.engine.planning import EpochPlan, Watermarks, input_of
from lamina.engine.plans import EnginePlan, EngineSettings, StreamPlan
from lamina.engine.states import States
from lamina.state.scanning import highest
from lamina.workspace.base import TaskSpace


class Works:
    """Of one engine, in one process."""

    def __init__(
        self,
        plan: EnginePlan,
        settings: EngineSettings,
        states: States,
        space: TaskSpace,
        *,
        generation: int,
        run_id: str,
    ) -> None:
        self._plan, self._settings = plan, settings
        self._states, self._space = states, space
        self._generation, self._run_id = generation, run_id

    def work(
        self,
        stream: StreamPlan,
        plan: EpochPlan,
        results: Mapping[str, StreamResult],
        *,
        applied: Watermarks,
        committed: Watermarks,
        saved_epoch: int,
    ) -> StreamWork:
        """*applied* are the watermarks that the epoch before had, *committed* those it has left."""
        return StreamWork(
            stream=stream.name,
            epoch=plan.epoch,
            generation=self._generation,
            run_id=self._run_id,
            space=self._space,
            partitions=self._settings.partitions,
            inputs=tuple(input_of(name, plan, results) for name in stream.inputs),
            operators=tuple(
                OperatorWork(name, self._states.plan(name), self._states.refs(name))
                for name in stream.operators
            ),
            late_floor=self._late_floor(self._plan.lateness_of(stream), plan, applied),
            floor=plan.watermarks.floor_of(stream.sources, stream.lateness_us),
            floor_before=applied.floor_of(stream.sources, stream.lateness_us),
            saved_epoch=saved_epoch,
            latest_max_us=committed.latest_max(
                stream.inputs, self._plan.delays_by_rows, self._settings.max_ahead_us
            ),
            epoch_time_us=plan.time_us,
            tables=tuple(plan.tables.values()),
        )

    def _late_floor(self, stream: StreamPlan, plan: EpochPlan, applied: Watermarks) -> int | None:
        """What is older is late, on every partition alike: also what one of them has closed."""
        marks = applied if self._plan.follows_windows(stream) else plan.watermarks
        floors = [self._states.operators[name].floor for name in stream.operators]
        return highest([marks.floor_of(stream.sources, stream.lateness_us), *floors])
