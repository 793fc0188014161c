"""What only the service and the source can tell of a mapping, asked for `check --live`."""
