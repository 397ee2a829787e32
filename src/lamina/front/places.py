"""Which pipeline is meant: its file, its name, its home and its store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lamina.errors import BadPipeline, NotFound, UsageError
from lamina.os_errors import typed_errors
from lamina.store.address import FOLDER, kept_by

if TYPE_CHECKING:
    from lamina.pipeline.model import Pipeline

INSTALL = "pip install 'lamina[spark,java]'"


@dataclass(frozen=True, slots=True)
class PipelinePlace:
    """A pipeline file, and where what it keeps is: beside it, unless somebody says otherwise."""

    file: Path
    home: Path  # of a home in an object store: the folder of this machine beside it
    store: str
    remote: str = ""  # the address of a home in an object store

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def given_home(self) -> str:
        """As --home has it."""
        return self.remote or str(self.home)

    @property
    def folder(self) -> Path:
        """Relative paths of sources and sinks are below it."""
        return self.file.absolute().parent

    @property
    def scratch(self) -> Path:
        """For what Spark writes."""
        return self.folder / FOLDER / self.name / "scratch"

    def read(self) -> Pipeline:
        """The pipeline of the file, with the environment's variables filled in."""
        from lamina.pipeline.statements import parse_pipeline  # noqa: PLC0415  slow to import

        with typed_errors(self.file):
            if self.file.is_dir():
                raise UsageError("this is a folder, not a pipeline file", where=str(self.file))
            try:
                text = self.file.read_bytes().decode("utf-8")
            except FileNotFoundError:
                raise NotFound(
                    "there is no such pipeline file",
                    where=str(self.file),
                    advice="`lamina init DIR` makes an example",
                ) from None
            except UnicodeDecodeError as error:
                message = f"not valid UTF-8 (at byte {error.start})"
                raise BadPipeline(message, where=str(self.file)) from None
        return parse_pipeline(text, os.environ, file=str(self.file))


def place_of(
    file: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    store: str | None = None,
) -> PipelinePlace:
    path = Path(file)
    if not path.stem or "\0" in str(path):
        raise UsageError("the name of the pipeline file is empty")
    kept = kept_by(path, home, store)
    return PipelinePlace(path, kept.home, kept.store, kept.remote)


def require_spark(what: str) -> None:
    """UsageError if pyspark is not installed; nothing of ours that needs it is imported before."""
    try:
        import_module("pyspark")
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] != "pyspark":
            raise
        message = f"{what} needs Spark, and pyspark is not installed"
        raise UsageError(message, advice=INSTALL) from None
