"""Delta Lake tables as sinks."""
