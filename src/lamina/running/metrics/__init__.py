"""Metrics of a running pipeline, and whether it is alive and ready, over HTTP on one port.

table     every metric, with its labels and its meaning
collect   their values: of epochs that are over, and of the engine as it is now
server    /metrics, /livez and /readyz
"""
