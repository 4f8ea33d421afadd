"""How good a filter or a model is: divergences, calibration, many episodes at once."""
