"""Bytes to values and back, and every name: pure, no I/O. docs/FORMAT.md is the specification.

manifest         a checkpoint's manifest; manifest_* are its versions, validation_* its rules
log              entries of the commit log, begin.json, `_latest`
wal, commit      records of the write-ahead log, and what COMMIT, ADOPT and TAKEOVER say
run_footer       the footer of a run file
names            every name in a store; home_names: every name in a home
home_file        home.json; pipeline_record: whose it is
sink_log         the log of a Parquet sink; sink_position: where other sinks stand
canonical        JSON with one spelling; fields and inline read it
"""
