"""The first mapping of a sample, as `eventsync init` writes it: what each column seems to be, with the evidence said."""
