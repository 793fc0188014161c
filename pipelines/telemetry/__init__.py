"""What operators see of a worker while it works: log lines, Prometheus metrics and OpenTelemetry traces."""
