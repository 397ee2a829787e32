"""How many examples hypothesis draws: a third by default, all with LAMINA_EXAMPLES=all."""

from __future__ import annotations

import os

IS_LONG = os.environ.get("LAMINA_EXAMPLES") == "all"


def examples(count: int) -> int:
    """For `max_examples`, where *count* is what a long run tries."""
    return count if IS_LONG else max(count // 3, 10)
