"""What Dagster sees and does: assets with their checks, schedules, sensors, partitions, and how runs are launched.

The work itself is done by `pipelines.run`, which does not import Dagster.
"""
