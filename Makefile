# make quickstart   install into .venv and run the tour on simulated data
# make test         install what tests need and run them
# make test-ray     also install Ray (250 MB), and run the tests that need it
# make check        format, lint, types, import order
# make clean        remove .venv, caches and build products

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
INPUTS := pyproject.toml constraints.txt

.PHONY: quickstart test test-ray check clean
.DELETE_ON_ERROR:

quickstart: $(VENV)/.installed
	$(BIN)/cefito quickstart

test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-ray: $(VENV)/.installed-test
	$(PIP) --editable '.[test,ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -k "ray or cluster" \
	  tests/executors tests/batch/test_batch.py tests/evaluation/test_study.py

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_imports.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "cefito needs Python 3.11 or newer, but '$(PYTHON)' is missing or older." \
	       "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(INPUTS) | $(BIN)/python
	@echo "installing into $(VENV); torch is large, the first time takes minutes" >&2
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(INPUTS) | $(BIN)/python
	@echo "installing into $(VENV); torch is large, the first time takes minutes" >&2
	$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(INPUTS) | $(BIN)/python
	@echo "installing into $(VENV); torch is large, the first time takes minutes" >&2
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed
