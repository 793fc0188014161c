"""How runs are started on Dagster, watched, and cleared away."""
