"""The position of a sink that cannot remember it: a small file of the pipeline's home.

<home>/sinks/<name>.json    the last epoch it was given, and the generation that did
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from lamina.disk.files import LocalFiles, make_folder, replace
from lamina.engine.spelling import stored_name
from lamina.format.home_names import parse_sink_position, sink_position_path
from lamina.format.pipeline_record import NOBODY
from lamina.format.sink_log import SinkEntry
from lamina.format.sink_position import decode_position, encode_position
from lamina.os_errors import typed_errors
from lamina.protocol.sinks import SinkPosition


@dataclass(frozen=True, slots=True)
class HomePositions:
    """Of the sink *name* of the pipeline in *home*."""

    home: Path
    name: str

    @property
    def _path(self) -> Path:
        """Case does not tell sinks apart: a file that is there keeps its name."""
        home = self.home.absolute()
        folder = (home / sink_position_path(self.name)).parent
        there = map(parse_sink_position, LocalFiles().names(folder))
        names = [name for name in there if name is not None]
        return home / sink_position_path(stored_name(self.name, names, "the position of"))

    def load(self) -> SinkPosition:
        path = self._path
        with typed_errors(path):
            if not path.exists():
                return SinkPosition(NOBODY, 0, None)
            data = path.read_bytes()
        found = decode_position(data, str(path))
        return SinkPosition(found.pipeline, found.generation, found.point)

    def save(self, position: SinkPosition) -> None:
        at = SinkEntry(position.pipeline, position.generation, position.point)
        with typed_errors(self._path):
            files = LocalFiles()
            make_folder(files, self._path.parent)
            replace(files, self._path, BytesIO(encode_position(at)))
