"""What `lamina.run` and `lamina.check` accept as a pipeline: a file, or one made in Python."""

from __future__ import annotations

import os
from pathlib import Path

from lamina.errors import UsageError
from lamina.front.places import PipelinePlace, place_of
from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.model import Pipeline

PipelineLike = str | os.PathLike[str] | Pipeline | PipelineBuilder


def locate(
    pipeline: PipelineLike,
    *,
    home: str | os.PathLike[str] | None = None,
    store: str | None = None,
    name: str = "",
    folder: str | os.PathLike[str] = "",
) -> tuple[PipelinePlace, Pipeline | None]:
    """Where a pipeline lives; and the pipeline itself, if it is not in a file."""
    model = pipeline.build() if isinstance(pipeline, PipelineBuilder) else pipeline
    if isinstance(model, Pipeline):
        return place_of(Path(folder, name or "pipeline"), home, store), model
    if name or folder:
        raise UsageError("a pipeline file has its own name and folder: give neither")
    return place_of(model, home, store), None
