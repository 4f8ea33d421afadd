"""The problems of the playground."""
