"""Crash tests: what was acknowledged survives every state that a crash may leave behind.

disk        a disk in memory that knows what a power cut may leave of it
pipeline    a small pipeline on the real code, and an independent model of what it promised
"""
