"""Telling the owners of feeds what needs them."""
