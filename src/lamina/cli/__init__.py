"""The `lamina` command. The module of `lamina NAME` is NAME.py, in the folder of its subject:

main          the group, and the way out: errors, interrupts, exit codes
commands      all commands with their summaries, imported when they are used
pipeline      init, check, run, status, stop, checkpoint
checkpoints   list, show, log, verify, savepoint, gc, delete, copy, import
state         inspect, diff
wal           wal list, dump, verify, repair; recover
tools, demo   doctor; demo
support       what commands share: options, exit codes, tables, JSON
"""
