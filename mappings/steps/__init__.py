"""The closed vocabulary of steps, one module per subject: each step's parameters beside the function that they drive."""
