"""Files: checkpoints, saved filter states, the shipped model. Nothing that is loaded is ever run."""
