"""A run of a pipeline: epoch after epoch, its status, and the requests it answers. No Spark.

loop       calls the engine until there is a reason to stop
presence   the run in its home: it holds the lock; holder says who does
request_costs   what the requests to a store cost in a month
control    status.json and requests: small files in the home
settings   everything a run is started with
"""
