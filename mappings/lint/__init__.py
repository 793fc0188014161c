"""Warnings of `eventsync check` about mapping files that load but are unwise or incomplete, one module per subject."""
