"""What `eventsync check` warns of: mappings that load and are unwise, one module per subject."""
