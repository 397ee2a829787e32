"""Keyed state: runs, partitions, merge functions. No Spark here, and no store.

vnodes      where a key lives; hashing, murmur3 and xxhash64 hash as Spark does
schema      columns of a state; keys, key_columns and stored_types say what may be a key
run         a run in memory; run_file: as a file; local: the folder of a process's own files
partition   a short list of runs, and look-ups in them; operator: all partitions of one state
changes     new rows as a run; folding: several new values of a key as one
merge       merge functions; merge_* implement them
scanning    several runs as one: newest wins; tiers: which runs to compact
layers      runs of several old partitions as one
"""
