"""One pipeline, one epoch at a time: plan, run, decide, publish. No Spark in this package.

engine      the epoch; opening makes one: claim, recover, open all state
ports       what it asks of others: Source, Sink, Runner
model       what it says to runners and tasks; wire is a task's answer as text
planning    offsets and watermarks: pure
task, steps what a task does with its partition, the same in every runner
states      the runs of every operator, as the driver lists them
publishing  every decided epoch to every sink; saves makes checkpoints beside further epochs
"""
