"""Reads the lines of JSON that a program prints: records, or messages of a Singer tap or an Airbyte connector.

`program` starts it and ends it, `guard` is the process between us that kills it when we are gone, `messages` keeps what it
prints until it has proved its end, and `source` makes rows of it.
"""
