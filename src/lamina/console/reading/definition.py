"""The pipeline file: its text, and how rows flow through it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lamina.console.subjects import Subject
from lamina.errors import LaminaError
from lamina.front.flow import Flow, flow_of
from lamina.os_errors import typed_errors
from lamina.pipeline.statements import parse_pipeline

TEXT_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Definition:
    """Without a file there is neither; of a file with a mistake only the text."""

    text: str = ""
    flow: Flow | None = None
    error: LaminaError | None = None
    stamp: object = None  # changes with the file


class DefinitionReader:
    """Parses a file once for each time it was written."""

    def __init__(self, subject: Subject) -> None:
        self._file = subject.file
        self._known = Definition()

    def read(self) -> Definition:
        if self._file is None:
            return Definition()
        try:
            with typed_errors(self._file):
                if not self._file.is_file():
                    return Definition()
                found = self._file.stat()
                stamp = (found.st_mtime_ns, found.st_size)
                if stamp == self._known.stamp:
                    return self._known
                with self._file.open("rb") as opened:
                    text = opened.read(TEXT_BYTES_MAX).decode("utf-8", "replace")
        except LaminaError as error:
            return Definition(error=error)
        self._known = self._parsed(text, stamp)
        return self._known

    def _parsed(self, text: str, stamp: object) -> Definition:
        file = str(self._file)
        try:
            flow = flow_of(parse_pipeline(text, os.environ, file=file), file=file)
        except LaminaError as error:
            return Definition(text, None, error, stamp)
        return Definition(text, flow, None, stamp)
