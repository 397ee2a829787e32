"""What a home in an object store asks of it: counted, and as `lamina check` prices it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.engine.plans import EngineSettings
from lamina.running.request_costs import CHECKPOINT, Requests
from lamina.store import MemoryStore
from lamina.testing.faulty import FaultyStore
from tests.engine.pipelines import kill
from tests.engine.test_remote_homes import Machines


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_epoch_with_a_checkpoint_asks_for_what_is_priced(
    partitions: int, tmp_path: Path
) -> None:
    """Home and store together, when as many checkpoints are kept as always will be."""
    home, store = FaultyStore(MemoryStore()), FaultyStore(MemoryStore())
    world = Machines(tmp_path, objects=home, store=store)
    retain = EngineSettings().retain
    world.settings = replace(
        world.settings, checkpoint_epochs=1, retain=retain, partitions=partitions
    )
    engine = world.open()
    for _ in range(retain + 2):
        before = home.calls + store.calls
        assert engine.step() is not None
        engine.finish_checkpoint()
    asked = home.calls + store.calls - before
    assert requests(asked) == CHECKPOINT + Requests(puts=1), asked
    kill(engine)


def requests(calls: Counter[str]) -> Requests:
    """By what is charged."""
    counted = {
        "puts": ("put", "put_if_absent", "copy"),
        "gets": ("get", "get_range", "head"),
        "lists": ("list", "list_folder"),
    }
    assert set(calls) <= {name for names in counted.values() for name in names} | {"delete"}
    return Requests(**{kind: sum(calls[n] for n in names) for kind, names in counted.items()})
