"""A seeded simulation: real rules, every interleaving we can find, ten guarantees after each step.

scheduler  actors as greenlets; one seed decides who runs, stalls, is killed
disk       files whose unsynced bytes a power cut may take
store      an object store that pauses around every call and sometimes answers unclearly
world      what happened in truth, and the checks
tasks      Spark tasks that append runs to a core's WAL, with late twins
driver     one process: claim, look, plan, adopt, publish, run epochs, checkpoint, rewind, trim
tools      people: savepoints and gc
run        one seed from start to verdict

real_world, real_driver, real_run: the same with the code that ships (log, recovery, checkpointer,
gc) on the disk of tests/crash, which pauses at every call.

remote_store, remote_disk, remote_driver, remote_run: homes in a bucket, by the rules of
lamina.protocol.pieces; every process has a machine of its own.

A failing seed is printed; `python -m tests.sim.run SEED` (or `tests.sim.real_run SEED`) replays it
with a trace.
"""
