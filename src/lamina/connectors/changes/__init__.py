"""What sources of changes share: types, folding, the file of an epoch, and their skeleton."""
