"""A local Event Publishing service for first runs, tests and trials. Independent of the other packages."""
