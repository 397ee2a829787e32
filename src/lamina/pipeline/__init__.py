"""What a pipeline is: its model, its SQL, its checks. Pure: no Spark, no file, no network."""

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
    "Sink",
    "Source",
    "Stream",
    "Watermark",
    "parse_pipeline",
]
