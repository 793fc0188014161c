"""The closed vocabulary of steps: parameters beside the pure function that they drive."""
