# Everything runs inside .venv, which the first target that needs it creates.

# The first interpreter that is new enough; name another one with `make setup PYTHON=...`.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$python -c "$(NEW_ENOUGH)" >/dev/null 2>&1 && { echo $$python; break; }; done)
PYTEST_ARGS ?= -n 2 --dist loadfile -q

BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench bench-zero bench-peers docs report tutorial wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the package and all it needs, once

# Stamped, so that it is done again only when what is to be installed has changed.
$(STAMP): pyproject.toml paper/pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c "$(NEW_ENOUGH)" || { \
		echo "nbf needs Python 3.11 or newer; found $(or $(PYTHON),none). Install one, or name it: make setup PYTHON=..." >&2; exit 1; }
	@echo "Installing into .venv (once; it may take a few minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' -e ./paper
	@touch $@

demo: $(STAMP) ## filter in Gridworld with the shipped model, live in the terminal
	@$(BIN)/nbf demo

# Compiling all sources takes ten seconds of each worker and a second of each program that a test starts.
test: $(STAMP) ## run the tests (PYTEST_ARGS="-m slow" for the slow ones)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(STAMP) ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(STAMP) ## time one update of every filter, batches, training, and calls from Python
	@$(BIN)/python -m benchmarks.updates
	@$(BIN)/python -m benchmarks.online
	@$(BIN)/python -m benchmarks.triangulation
	@$(BIN)/python -m benchmarks.regeneration

bench-zero: $(STAMP) ## what other packages' filters do when every likelihood is zero (installs them into .peers)
	@$(BIN)/python -m benchmarks.zero_likelihood

bench-peers: $(STAMP) ## how fast other packages' particle filters step, beside ours (installs them into .peers)
	@$(BIN)/python -m benchmarks.peers

docs: $(STAMP) ## build the site into build/site, strictly and without network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

report: $(STAMP) ## redraw the figures and tables of the pages from the committed records
	@$(BIN)/nbf-paper report

tutorial: $(STAMP) ## run the tutorial, and write its outputs and figure into the docs (a few minutes)
	@$(BIN)/python docs/run_tutorial.py

wheel: ## build sdist and wheel into dist, and run the README's code from the wheel in a fresh environment
	@.ci/check-release $(PYTHON)

clean: ## remove caches and build products (.venv stays)
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find src paper tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
