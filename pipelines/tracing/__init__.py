"""Runs told to OpenTelemetry."""
