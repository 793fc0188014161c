"""One run of one feed, from the lease to the outcome: stage, check the brakes, publish, settle.

Independent of Dagster and the command line; both build a run context and start the run.
"""
