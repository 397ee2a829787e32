"""`lamina demo`: trades is its input, child is killed, truth is what the result must equal."""
