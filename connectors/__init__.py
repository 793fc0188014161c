"""Clients for sources and for the Event Publishing API; the only package that uses the network. It never imports `state`."""
