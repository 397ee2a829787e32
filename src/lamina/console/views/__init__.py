"""What pages show, as values: made of what was read, without any I/O."""
