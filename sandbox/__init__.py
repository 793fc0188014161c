"""A faithful local Event Publishing service for first runs, rehearsals and tests. Imports none of the other packages."""
