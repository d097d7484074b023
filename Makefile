# make demo | test | test-all | mutation | check | bench    Each works alone in a fresh clone; nothing else to type.
PYTHON ?= python3
BIN := .venv/bin
PIP_QUIET := --quiet --disable-pip-version-check

.PHONY: demo test test-all mutation check bench clean

demo: .venv/installed
	$(BIN)/noiseproof demo

# The tests of the review page drive a Chromium, and are skipped where there is none: apt-get install chromium
test: .venv/installed-dev check
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n auto --maxprocesses 4

test-all: .venv/installed-dev check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4
	$(MAKE) mutation

mutation: .venv/installed-dev
	rm -rf build/mutation
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutation

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-bench
	for script in $(filter-out benchmarks/common.py benchmarks/rivals.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

.venv/created:
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/created pyproject.toml constraints.txt
	$(BIN)/pip install $(PIP_QUIET) -c constraints.txt -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install $(PIP_QUIET) -c constraints.txt -e ".[dev]"
	touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/pip install $(PIP_QUIET) -c constraints.txt -e ".[dev,kornia,bench]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
