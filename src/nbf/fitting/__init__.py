"""One call from a family of environments to a trained filter with a known calibration."""
