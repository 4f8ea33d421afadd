"""The experiments: what runs, and what is recorded of it."""
