"""Merges of moments: what variances, correlations, skewness and kurtosis are computed of.

moments      n, mean, m2 [, m3, m4]           sums of powers of the distances to the mean
comoments    n, mean_x, mean_y, c, m2x, m2y   c is the sum of the products of both distances

The formulas are Chan's and Pébay's, in the order of operations in which Spark merges its own
buffers. A side without values (n null or 0) changes nothing; there Spark's mean may move by a bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lamina.state.merge_function import Columns, Doubles, Function, Step, choose
from lamina.state.merge_numbers import add_checked


def _moments(step: Step) -> Sequence[pa.Array]:
    n1, mean1, m2_1, *higher1 = _doubles(step.old)
    n2, mean2, m2_2, *higher2 = _doubles(step.new)
    with np.errstate(all="ignore"):  # infinities and NaN are data here
        n = n1 + n2
        delta = mean2 - mean1
        delta_n = _over(delta, n)
        merged = [mean1 + delta_n * n2, m2_1 + m2_2 + delta * delta_n * n1 * n2]
        if higher1:
            (m3_1, m4_1), (m3_2, m4_2) = higher1, higher2
            merged.append(
                m3_1
                + m3_2
                + delta_n * delta_n * delta * n1 * n2 * (n1 - n2)
                + 3.0 * delta_n * (n1 * m2_2 - n2 * m2_1)
            )
            merged.append(
                m4_1
                + m4_2
                + delta_n * delta_n * delta_n * delta * n1 * n2 * (n1 * n1 - n1 * n2 + n2 * n2)
                + 6.0 * delta_n * delta_n * (n1 * n1 * m2_2 + n2 * n2 * m2_1)
                + 4.0 * delta_n * (n1 * m3_2 - n2 * m3_1)
            )
    return _unless_empty(step, "moments", merged)


def _comoments(step: Step) -> Sequence[pa.Array]:
    n1, x1, y1, c1, m2x_1, m2y_1 = _doubles(step.old)
    n2, x2, y2, c2, m2x_2, m2y_2 = _doubles(step.new)
    with np.errstate(all="ignore"):
        n = n1 + n2
        dx, dy = x2 - x1, y2 - y1
        dx_n, dy_n = _over(dx, n), _over(dy, n)
        merged = [
            x1 + dx_n * n2,
            y1 + dy_n * n2,
            c1 + c2 + dx * dy_n * n1 * n2,
            m2x_1 + m2x_2 + dx * dx_n * n1 * n2,
            m2y_1 + m2y_2 + dy * dy_n * n1 * n2,
        ]
    return _unless_empty(step, "comoments", merged)


def _over(distance: Doubles, n: Doubles) -> Doubles:
    return np.divide(distance, n, out=np.zeros_like(distance), where=n != 0)


def _unless_empty(step: Step, function: str, merged: Sequence[Doubles]) -> Sequence[pa.Array]:
    """n and the *merged* columns; where a side has no values, the other as it is.

    Of two sides without values, a null says less than what Spark has computed of no value.
    """
    count = step.fields[0]
    old_n, new_n = (side[0].fill_null(0) for side in (step.old, step.new))
    if pa.types.is_integer(count.type):
        total = add_checked(function, count, old_n, new_n)
    else:
        total = pc.add(old_n, new_n)
    no_old, no_new = pc.equal(old_n, 0), pc.equal(new_n, 0)
    return [
        choose(no_old, pc.coalesce(new, old), choose(no_new, old, both))
        for old, new, both in zip(
            step.old, step.new, (total, *(pa.array(each) for each in merged)), strict=True
        )
    ]


def _doubles(side: Sequence[pa.Array]) -> list[Doubles]:
    return [
        array.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
        for array in side
    ]


def _check_moments(columns: Columns) -> None:
    if len(columns.fields) != 5:
        columns.count(3, 3, what="three columns: n, mean and m2; or five, with m3 and m4")
    _check_doubles(columns)


def _check_comoments(columns: Columns) -> None:
    columns.count(6, 6, what="six columns: n, mean_x, mean_y, c, m2x and m2y")
    _check_doubles(columns)


def _check_doubles(columns: Columns) -> None:
    columns.each(0, lambda kind: kind in (pa.int64(), pa.float64()), what="int64 or double for n")
    for index in range(1, len(columns.fields)):
        columns.each(index, pa.types.is_float64, what="double for moments")


MOMENTS = {
    "moments": Function(_moments, _check_moments, {}),
    "comoments": Function(_comoments, _check_comoments, {}),
}
