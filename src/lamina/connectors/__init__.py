"""Outside systems: where output goes."""
