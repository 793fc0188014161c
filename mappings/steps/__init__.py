"""The closed vocabulary of steps, one module per subject, each step with its parameters and function."""
