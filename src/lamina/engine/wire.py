"""Results of tasks as text: what travels from a task to the driver, in one row."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import asdict
from typing import Any

from lamina.engine.model import CompactedRuns, TaskResult
from lamina.format.commit import WalRange
from lamina.workspace.model import CarriedRange, CarriedStaged, Staged


def encode_result(result: TaskResult) -> str:
    return json.dumps(asdict(result), default=_text)


def decode_result(text: str) -> TaskResult:
    return result_of(json.loads(text))


def result_of(value: Any) -> TaskResult:
    """A result as JSON has it."""
    return TaskResult(
        partition=value["partition"],
        ranges=tuple(map(_range, value["ranges"])),
        staged=tuple(map(_staged, value["staged"])),
        compacted=tuple(
            CompactedRuns(
                each["operator"],
                tuple(each["inputs"]),
                each["path"],
                each["key"],
                b64decode(each["data"]),
            )
            for each in value["compacted"]
        ),
        rows_in=value["rows_in"],
        late=value["late"],
        keys=value["keys"],
        late_right=value["late_right"],
        row_bytes=value["row_bytes"],
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _range(value: Any) -> WalRange:
    if "payload" in value:
        return CarriedRange(**{**value, "payload": b64decode(value["payload"])})
    return WalRange(**value)


def _staged(value: Any) -> Staged:
    if "data" in value:
        return CarriedStaged(**{**value, "data": b64decode(value["data"])})
    return Staged(**value)
