"""Faults of the real world against real processes on a real disk, with an oracle of its own.

test_strace      SIGKILL, EIO and ENOSPC at the n-th system call of a scripted process
test_kill9       kill -9 at random times, one history over all rounds
test_full_disk   an ext4 without room, and then with room again
test_power_cut   an ext4 that loses what was not synced, and the proof that the test can fail

The short form runs by default and samples. The long form takes minutes and leaves nothing out:

    LAMINA_FAULTS=long .venv/bin/python -m pytest tests/faults

           by default                  long form
strace     4 calls of each kind        every call of each kind
kill -9    20 rounds                   200 rounds
power cut  3 cuts                      30 cuts
full disk  2 times                     20 times

LAMINA_FAULTS_SEED=7 draws other data and other moments. Needed besides Python: strace; for power
cut and full disk also root, mkfs.ext4 (e2fsprogs), mount and a loop device. What is missing is
skipped and says so.
"""
