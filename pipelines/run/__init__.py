"""The story of one run: open the source, stage its rows, ask the brakes, publish what is owed. Knows no Dagster."""
