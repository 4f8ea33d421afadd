"""The experiments of the paper *Neural Bayesian Filtering* (arXiv 2510.03614): run, recorded and drawn."""
