"""Log lines and Prometheus metrics for operators."""
