"""Log weights, and every way to leave few weighted points for many."""
