"""What commands share.

session   what one call of the command shares
exits     which error ends with which exit code
target    --store, --base and --option, and what they open
homes     --home, and which segments are in it
places    PIPELINE with --home and --store
screen    what a person or a script reads: tables, JSON, notes, progress
shapes    the JSON that scripts read
rows      the rows of a RUN as text and JSON
words     times, sizes and names as text
consent   asked before anything is deleted
"""
