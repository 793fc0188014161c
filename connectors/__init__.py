"""WHERE rows come from, WHERE events go. The only room that knows the network; it never meets `state`."""
