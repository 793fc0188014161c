"""Events out: everything that is said to the Event Publishing API."""
