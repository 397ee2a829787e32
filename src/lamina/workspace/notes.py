"""Small files of a home: what a process says of itself, requests, positions of sinks."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from lamina.disk.files import Files, LocalFiles, make_folder, replace
from lamina.os_errors import typed_errors


class LocalNotes:
    """Below a folder."""

    def __init__(self, home: Path, files: Files | None = None) -> None:
        self._home = home.absolute()
        self._files = files or LocalFiles()

    def where(self, name: str) -> str:
        return str(self._home / name)

    def names(self, folder: str) -> list[str]:
        path = self._home / folder
        with typed_errors(path):
            return self._files.names(path)

    def read(self, name: str) -> bytes | None:
        path = self._home / name
        with typed_errors(path):
            try:
                with self._files.open(path) as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        path = self._home / name
        with typed_errors(path):
            if durable:
                make_folder(self._files, path.parent)
                replace(self._files, path, BytesIO(data))
                return
            path.parent.mkdir(exist_ok=True)
            aside = path.with_name(f".{path.name}.{self._files.tag}")
            aside.write_bytes(data)
            aside.replace(path)

    def remove(self, name: str) -> None:
        path = self._home / name
        with typed_errors(path):
            self._files.unlink(path)
