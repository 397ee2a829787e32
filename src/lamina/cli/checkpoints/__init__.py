"""Commands about checkpoints: list, show, log, verify, savepoint, gc, delete, copy, import."""
