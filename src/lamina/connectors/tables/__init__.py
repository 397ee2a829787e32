"""Tables: reference data for joins, one version of it for each epoch."""
