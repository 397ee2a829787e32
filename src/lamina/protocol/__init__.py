"""The rules R2 to R6, R11 and R12 of the design as pure functions over plain values.

history    R3, R11  what the commit log says, and what may be written to it next
retention  R7, R11  which checkpoints to forget, which files to delete, which WAL to keep
driver     R4, R5   which COMMITs of a driver log count, who is superseded, which epoch is next
pieces     R1, R5   the driver log in an object store: who has a number, what a listing holds
sinks      R6       publish, already done, fenced, diverged
sink_plan  R6, R12  what a start gives to a sink, or why it stops there
recovery   R2, R12  what a recovery restores, replays and publishes, or why it stops

No function here performs I/O. The simulation in tests/sim runs them under every interleaving it
can find, and a mutant of each rule must make it fail.
"""
