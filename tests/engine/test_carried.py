"""What recovery brings and no stream changes is there after every epoch and checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lamina.checkpoint import Checkpointer, import_checkpoint, read_checkpoint, verify
from lamina.recovery import RecoveryConfig
from lamina.store import MemoryStore
from tests.engine.pipelines import LIMITS, PLAN, World, expected, kill, run_out

GOLDEN = Path(__file__).parents[1] / "golden" / "v1" / "full-0.20.json"
DATA = World(Path()).data
CONNECTORS = {"trades": "kafka", "orders": "json"}


def laminar() -> MemoryStore:
    """A checkpoint of LaminarDB with table offsets and operator states."""
    document = json.loads(GOLDEN.read_bytes())
    del document["table_store_checkpoint_path"]
    folder = MemoryStore()
    folder.put("manifest.json", json.dumps(document).encode())
    store = MemoryStore()
    import_checkpoint(read_checkpoint(folder), Checkpointer(store))
    return store


def test_table_offsets_and_operator_states_ended_at_the_next_epoch(tmp_path: Path) -> None:
    store = laminar()
    before = Checkpointer(store)
    original = before.load_manifest(before.list_checkpoints()[0].id)
    assert original.table_offsets
    assert original.operator_states
    world = World(tmp_path, store=store, plan=replace(PLAN, connectors=CONNECTORS))
    config = RecoveryConfig(same_pipeline=True, sinks_from_now=frozenset(PLAN.sinks))
    engine = world.open(recovery=config)
    run_out(engine, epochs=2)
    kill(engine)  # what the log alone has comes back, too
    world.finish()
    after = Checkpointer(store)
    last = after.load_manifest(after.list_checkpoints()[-1].id)
    assert last.epoch > original.epoch + 2
    assert last.table_offsets == original.table_offsets
    assert last.operator_states == original.operator_states
    for name, offset in original.source_offsets.items():
        assert last.source_offsets[name] == offset, "of a source that is not in the pipeline"
    types = {name: last.source_offsets[name].metadata["connector_type"] for name in CONNECTORS}
    assert types == CONNECTORS
    assert verify(after, (last.checkpoint_id,)).ok
    assert LIMITS.rows is not None
    assert world.outcome() == expected(DATA, LIMITS.rows)
