"""Draws ratios.svg from numbers.json, which `make bench` writes: Lamina beside what people use."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # it is run as a script, not installed

from svg import BLUE, FAINT, INK, LINE, box, line, text, write

FOLDER = Path(__file__).parent
WIDTH, LEFT, ROW, TOP = 900, 430, 34, 66
FULL = 380  # the longest bar, in pixels


@dataclass(frozen=True, slots=True)
class Bar:
    """A number of the benchmarks; *inverse* ones are shown as one over it: longer is faster."""

    key: str
    words: str
    inverse: bool = False


BARS = (
    Bar("agg_vs_rocksdb", "an epoch of 500,000 rows, 1 M keys vs Spark + RocksDB"),
    Bar("agg_vs_default", "the same vs Spark + default store"),
    Bar("small_epoch_ratio", "an epoch of 100 rows vs Spark + default store", inverse=True),
    Bar("upsert_vs_rocksdict", "keyed upserts, no Spark, vs RocksDB"),
    Bar("upsert_vs_duckdb", "the same vs DuckDB"),
)


def main(numbers: Mapping[str, float], target: Path) -> None:
    height = TOP + ROW * len(BARS) + 42
    write(target, WIDTH, height, "Lamina against its peers, measured", parts(numbers, height))


def parts(numbers: Mapping[str, float], height: int) -> Iterator[str]:
    values = {bar.key: _value(bar, numbers) for bar in BARS}
    scale = FULL / max(values.values())
    yield text(
        20, 32, "Speed relative to the alternative, measured side by side", size=16, weight=600
    )
    for number, bar in enumerate(BARS):
        y = TOP + number * ROW
        yield text(LEFT - 12, y + 16, bar.words, size=12, anchor="end")
        yield box(LEFT, y, max(2.0, values[bar.key] * scale), 22, fill=BLUE)
        yield text(LEFT + values[bar.key] * scale + 8, y + 16, f"{values[bar.key]:.1f} x", fill=INK)
    bottom = TOP + ROW * len(BARS)
    yield line(LEFT + scale, TOP - 10, LEFT + scale, bottom, stroke=LINE, dash="4 3")
    yield text(LEFT + scale, TOP - 16, "equal", size=11, fill=FAINT, anchor="middle")
    said = "make bench; medians on 2 cores; what is compared and what limits it: docs/benchmarks.md"
    yield text(20, height - 14, said, size=11, fill=FAINT)


def _value(bar: Bar, numbers: Mapping[str, float]) -> float:
    return 1 / numbers[bar.key] if bar.inverse else numbers[bar.key]


if __name__ == "__main__":
    main(json.loads((FOLDER / "numbers.json").read_text()), FOLDER / "ratios.svg")
