"""The `lamina` command. One file per noun:

main          the group, and the way out: errors, interrupts, exit codes
exits         which error ends with which exit code
target        --store, --base and --option, and what they open
screen        what a person or a script reads: tables, JSON, notes, progress
words         times, sizes and names as text
shapes        the JSON that scripts read
checkpoints, manifests, log, verification, gc, deletion, savepoints, copying, doctor   the commands
machine       what doctor says about this computer
"""
