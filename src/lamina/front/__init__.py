"""The front door: a pipeline by its file, as people and the command line call it.

`lamina.run` and `lamina.check` are these. Nothing here imports Spark before it is needed.
"""
