"""Which pipeline a command is about: its file, its name, its home and its store."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from lamina.errors import BadPipeline, NotFound, UsageError
from lamina.os_errors import typed_errors
from lamina.pipeline.model import Pipeline
from lamina.pipeline.statements import parse_pipeline

F = TypeVar("F", bound=Callable[..., None])

FOLDER = ".lamina"
INSTALL = "pip install 'lamina[spark,java]'"


@dataclass(frozen=True, slots=True)
class PipelinePlace:
    """A pipeline file, and where what it keeps is: beside it, unless somebody says otherwise."""

    file: Path
    home: Path
    store: str

    @property
    def name(self) -> str:
        return self.file.stem

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
                message = f"this is no text in UTF-8: byte {error.start} is not"
                raise BadPipeline(message, where=str(self.file)) from None
        return parse_pipeline(text, os.environ, file=str(self.file))


def place_of(file: str, home: str | None = None, store: str | None = None) -> PipelinePlace:
    path = Path(file)
    if not path.stem or "\0" in file:
        raise UsageError("the name of the pipeline file is empty")
    kept = path.absolute().parent / FOLDER / path.stem
    return PipelinePlace(path, Path(home) if home else kept / "home", store or str(kept / "store"))


def pipeline_argument(command: F) -> F:
    """Give a command PIPELINE, --home and --store; it gets them as `place`."""

    @wraps(command)
    def run(pipeline: str, home: str | None, store: str | None, **rest: Any) -> None:
        command(place=place_of(pipeline, home, store), **rest)

    for add in reversed((click.argument("pipeline", metavar="PIPELINE"), *place_options())):
        run = add(run)
    return run  # type: ignore[return-value]


def place_options() -> tuple[Callable[[Any], Any], ...]:
    return (
        click.option(
            "--home",
            metavar="PATH",
            envvar="LAMINA_HOME",
            show_envvar=True,
            help="The folder of its write-ahead log; by default .lamina/NAME/home beside the file.",
        ),
        click.option(
            "--store",
            metavar="URL",
            envvar="LAMINA_STORE",
            show_envvar=True,
            help="Where its checkpoints go; by default .lamina/NAME/store beside the file.",
        ),
    )


def require_spark(what: str) -> None:
    """UsageError if pyspark is not installed; nothing of ours that needs it is imported before."""
    try:
        import_module("pyspark")
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] != "pyspark":
            raise
        message = f"{what} needs Spark, and pyspark is not installed"
        raise UsageError(message, advice=INSTALL) from None
