"""WHEN things run, WHAT they are wired to. The only room that knows Dagster and reads the environment."""
