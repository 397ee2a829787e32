"""Iceberg tables as a sink: rows and mark in one commit of the catalog."""
