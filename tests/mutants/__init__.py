"""Promises, the lines that keep them, and the tests that fail without those lines.

*.toml    the table: promise -> line -> test. Data; docs/promises.md is made of it
table     reads it
page      docs/promises.md
run       `make mutants`: breaks each line in a scratch copy and sees its test fail

A line is found by its text, not by its number: whoever changes it is told by test_table, and says
in the table how the promise is kept now.
"""
