"""The `lamina` command. One file per noun:

main          the group, and the way out: errors, interrupts, exit codes
commands      all commands with their summaries, imported when they are used
session       what one call of the command shares
exits         which error ends with which exit code
target        --store, --base and --option, and what they open
screen        what a person or a script reads: tables, JSON, notes, progress
words         times, sizes and names as text
shapes        the JSON that scripts read
run, check, status, stop, init, demo   a pipeline on Spark; run_places says where it is
run_screen    how a run shows itself; run_words what is said
demo_input, demo_child, demo_truth   data, a process to be killed, the batch to compare with
checkpoints, manifests, log, verification, gc, deletion, savepoints, copying, doctor   the commands
inspect, diff keyed state: states says which, state_rows prints it
machine       what doctor says about this computer
homes         --home, and which segments are in it
wal           the group of segments (list), records (dump), wal_verification, repairs
examination   every damaged place of a segment; lost_segments those that are gone
rows          the rows of a RUN as text and JSON
recovery      recover --dry-run; rehearsal does what a start does, and claims nothing
"""
