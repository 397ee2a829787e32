"""Results of tasks as text: what travels from a task to the driver, in one row."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from lamina.engine.model import CompactedRuns, TaskResult
from lamina.format.commit import WalRange
from lamina.workspace.model import Staged


def encode_result(result: TaskResult) -> str:
    return json.dumps(asdict(result))


def decode_result(text: str) -> TaskResult:
    return result_of(json.loads(text))


def result_of(value: Any) -> TaskResult:
    """A result as JSON has it."""
    return TaskResult(
        partition=value["partition"],
        ranges=tuple(WalRange(**each) for each in value["ranges"]),
        staged=tuple(Staged(**each) for each in value["staged"]),
        compacted=tuple(
            CompactedRuns(each["operator"], tuple(each["inputs"]), each["path"])
            for each in value["compacted"]
        ),
        rows_in=value["rows_in"],
        late=value["late"],
        keys=value["keys"],
        late_right=value["late_right"],
    )
