"""Where rows come from and where events go: the only package that knows the network. It never meets `state`."""
