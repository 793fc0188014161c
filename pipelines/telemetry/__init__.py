"""Log lines, Prometheus metrics and OpenTelemetry traces for operators."""
