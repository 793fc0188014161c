"""One run of one feed, from the lease to the outcome: stage, check the brakes, publish, settle.

Knows neither Dagster nor the command line: both build a run context and start the run from it.
"""
