"""Runs, commands and Dagster definitions: the only package that imports Dagster or reads the environment."""
