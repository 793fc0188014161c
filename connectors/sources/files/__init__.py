"""Finds, fetches, unpacks and decodes files: on this machine, on the web, in object stores."""
