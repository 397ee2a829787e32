"""What a sink shows after any epochs and rewinds, against plain sets."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.format.taken_back import TakenBack
from lamina.protocol.rewinds import is_shown
from tests.support.docs_scripts import script

steps = st.lists(st.one_of(st.none(), st.integers(min_value=0, max_value=1 << 16)), max_size=24)
"""An epoch with rows, or a rewind to one of the epochs so far."""


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    """The script of the docs: a reader of its own."""
    pytest.importorskip("obstore")
    return script("read_parquet_sink")


@given(steps)
def test_after_any_rewinds_it_shows_what_it_showed_then(
    reader: ModuleType, taken: list[int | None]
) -> None:
    shown_at: list[frozenset[int]] = [frozenset()]
    rewinds: list[TakenBack] = []
    for epoch, step in enumerate(taken, start=1):
        if step is None:
            shown_at.append(shown_at[-1] | {epoch})
        else:
            rewinds.append(TakenBack(epoch, step % epoch))
            shown_at.append(shown_at[step % epoch])
        ever = [e for e, step in enumerate(taken[:epoch], start=1) if step is None]
        assert {e for e in ever if is_shown(e, rewinds)} == shown_at[-1]
        plain = [{"epoch": each.epoch, "to": each.to} for each in rewinds]
        assert {e for e in ever if reader.is_shown(e, plain)} == shown_at[-1]
