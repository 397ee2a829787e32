"""Commands about one pipeline: init, check, run, status, stop, checkpoint.

run_screen and run_words show a run; requests asks a running pipeline something.
"""
