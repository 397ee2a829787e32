"""A running pipeline: its loop, what it says of itself, and what it is asked. No Spark."""
