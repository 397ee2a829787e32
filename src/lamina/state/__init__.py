"""Keyed state: vnodes, runs, merges, partitions. No Spark here, and no store."""
