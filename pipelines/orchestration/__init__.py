"""Dagster definitions: assets with checks, schedules, sensors, partitions, and the launching of runs.

`pipelines.run` does the work and does not import Dagster.
"""
