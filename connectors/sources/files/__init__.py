"""Where files are and which are meant: on this machine, on the web, in stores; how they are fetched, unpacked and decoded."""
