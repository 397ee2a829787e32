"""One line of JSON for each epoch, in a file or a stream, for whatever reads lines."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from lamina.errors import UsageError
from lamina.format.epoch_row import EpochRow, shape
from lamina.os_errors import typed_errors


class EventLines:
    """Of one run; appended, so that a file can be rotated by copying and truncating it."""

    what = "the file of events"

    def __init__(self, pipeline: str, place: str | Path | TextIO) -> None:
        """UsageError if it cannot be written; nothing is written yet."""
        self._pipeline = pipeline
        self._is_ours = isinstance(place, str | Path)
        self._where = str(place) if isinstance(place, str | Path) else "the stream of events"
        if isinstance(place, str | Path):
            try:
                self._file: TextIO = Path(place).open("a", encoding="utf-8")  # noqa: SIM115
            except (OSError, ValueError) as error:
                message = f"events cannot be written there: {error}"
                raise UsageError(message, where=str(place), advice="Give another file") from error
        else:
            self._file = place

    def add(self, row: EpochRow) -> None:
        """A line, flushed."""
        line = json.dumps({"event": "epoch", "pipeline": self._pipeline, **shape(row)})
        with typed_errors(self._where):
            self._file.write(line + "\n")
            self._file.flush()

    def finish(self) -> None:
        """Each line is flushed as it is written."""

    def close(self) -> None:
        """Once is enough, twice is not an error."""
        if self._is_ours:
            with suppress(OSError):  # what could not be written has been said
                self._file.close()
