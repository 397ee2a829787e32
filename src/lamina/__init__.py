"""Lamina: streaming on Spark that never loses, doubles or guesses."""

__version__ = "0.1.0"
