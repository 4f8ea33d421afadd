"""Sources of beliefs to train on."""
