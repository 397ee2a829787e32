"""What a pipeline is: its model, its SQL, its checks. Pure: no Spark, no file, no network."""

from lamina.pipeline.builder import PipelineBuilder
from lamina.pipeline.checks import check_pipeline, order
from lamina.pipeline.model import (
    Column,
    Emit,
    Option,
    Pipeline,
    Sink,
    Source,
    Stream,
    Watermark,
)
from lamina.pipeline.statements import parse_pipeline

__all__ = [
    "Column",
    "Emit",
    "Option",
    "Pipeline",
    "PipelineBuilder",
    "Sink",
    "Source",
    "Stream",
    "Watermark",
    "check_pipeline",
    "order",
    "parse_pipeline",
]
