"""Tables and figures of each experiment, drawn from its records."""
