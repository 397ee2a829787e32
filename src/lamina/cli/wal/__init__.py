"""Commands about the log: `lamina wal` (group) with list, dump, verify, repair; and recover."""
