"""What a pipeline is: its model, its SQL, its checks. Pure: no Spark, no file, no network.

model        a pipeline as a value
statements   a pipeline file; builder: the same in Python
select       one SELECT, taken apart
compile      SELECT to (partial, merge, final); aggregates lists the functions it knows
checks       what can be refused without Spark
digests      what has changed since the last start
"""

from typing import TYPE_CHECKING

from lamina.lazy import exports

if TYPE_CHECKING:
    from lamina.pipeline.builder import PipelineBuilder
    from lamina.pipeline.checks import check_pipeline, order
    from lamina.pipeline.model import (
        Column,
        DeclaredSink,
        DeclaredSource,
        Emit,
        Option,
        Pipeline,
        Stream,
        Watermark,
    )
    from lamina.pipeline.statements import parse_pipeline
else:
    __getattr__ = exports(
        __name__,
        {
            "lamina.pipeline.builder": "PipelineBuilder",
            "lamina.pipeline.checks": "check_pipeline order",
            "lamina.pipeline.model": (
                "Column DeclaredSink DeclaredSource Emit Option Pipeline Stream Watermark"
            ),
            "lamina.pipeline.statements": "parse_pipeline",
        },
    )

__all__ = [
    "Column",
    "DeclaredSink",
    "DeclaredSource",
    "Emit",
    "Option",
    "Pipeline",
    "PipelineBuilder",
    "Stream",
    "Watermark",
    "check_pipeline",
    "order",
    "parse_pipeline",
]
