"""Outside systems: the sources that a pipeline reads and the sinks that it writes.

kinds, registry   what a connector declares, and the one list of all of them
opening, options  from the definitions of a pipeline to open sources and sinks
files             which files of a folder an epoch reads; folder, read_files, file_status serve it
spark_files       how Spark reads them; file_frames, json_text, partitions, reader_options serve it
objects           which objects of a bucket an epoch reads; read_objects serves it
spark_objects     how tasks fetch and Spark parses them; object_frames, object_tasks serve it
trades, nexmark   generated rows; generators is what they share
parquet, console  sinks; sink_log and positions remember where each of them stands
object_parquet    the Parquet sink in an object store; object_log remembers
function          a Python function as a sink

Nothing here imports pyspark before rows are read.
"""
