"""The merge `python`: states of a user's own aggregate, each one struct.

Where a group has only one of the two states there is nothing to merge. The rest goes to the user's
code, all groups at once. Runs keep no code: whoever merges brings it along (`Merge.code`); who only
reads the state does not need it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.errors import UsageError
from lamina.state.merge_function import Columns, Function, Step, choose


def _python(step: Step) -> Sequence[pa.Array]:
    (field,), (old,), (new,) = step.fields, step.old, step.new
    if step.code is None:
        raise UsageError(
            f"{field.name!r} is merged by the code of a pipeline, and that is not here",
            advice="Run the pipeline that the state is of",
        )
    there = pc.is_valid(new)
    both = pc.and_(pc.is_valid(old), there).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(both)
    if len(rows) == len(both):
        return (step.code.merge(old, new),)
    either = choose(there, new, old)
    if not len(rows):
        return (either,)
    taken = pa.array(rows)
    merged = step.code.merge(old.take(taken), new.take(taken))
    place = np.arange(len(both))
    place[rows] = len(both) + np.arange(len(rows))
    return (pa.concat_arrays([either, merged]).take(pa.array(place)),)


def _check(columns: Columns) -> None:
    columns.count(1, 1, what="one column")
    columns.each(0, pa.types.is_struct, what="structs")


PYTHONS = {"python": Function(_python, _check, {})}
