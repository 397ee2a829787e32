"""Looking at a pipeline and its keyed state: any checkpoint or epoch as rows, what differs between
two, and whether everything that a start would read is still whole.

archive   a store, with or without its home, opened to look; claims nothing and changes nothing
places    which folder is the store, and which the home
reach     which checkpoint and which COMMITs make up a state
files     run files, fetched once and proven
view      the state of every operator at one point
where     rows by their keys; conditions: by what a person writes in SQL
diff      what differs between two views: windows walks them, compare tells rows apart
export    rows in a Parquet file
spark_checkpoint  a checkpoint of Structured Streaming: spark_folder reads it, spark_state and
          spark_restart say what a restart does with it
verification   a pipeline's home and store, every byte; home_files reads staged files and runs
"""

from lamina.inspect.archive import Archive, open_archive, open_view
from lamina.inspect.diff import Counts, OperatorDiff, diff
from lamina.inspect.verification import HomeReport, PipelineReport, verify_pipeline
from lamina.inspect.view import OperatorInfo, View
from lamina.inspect.where import parse_key

__all__ = [
    "Archive",
    "Counts",
    "HomeReport",
    "OperatorDiff",
    "OperatorInfo",
    "PipelineReport",
    "View",
    "diff",
    "open_archive",
    "open_view",
    "parse_key",
    "verify_pipeline",
]
