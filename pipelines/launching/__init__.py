"""Dagster as it is met from outside: its home, its webserver, the runs that are launched on it and those left behind."""
