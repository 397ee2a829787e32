# Two commands: `make demo` and `make test`. Each sets up all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Azurite, the Azure emulator: where there is no npm, its tests are skipped and say so.
AZURITE := $(if $(shell command -v npm 2>/dev/null),tests/servers/azurite/node_modules/.package-lock.json)

.PHONY: demo test check unit bench clean

demo: $(STAMP)
	$(BIN)/python examples/checkpoints.py

test: check unit

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: $(STAMP) $(AZURITE)
	$(BIN)/python -m pytest

bench: $(STAMP)
	$(BIN)/python benchmarks/checkpoint.py

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lamina needs Python 3.11 or newer: make PYTHON=python3.12 test")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

tests/servers/azurite/node_modules/.package-lock.json: tests/servers/azurite/package-lock.json
	npm ci --prefix tests/servers/azurite --no-audit --no-fund --loglevel=error

clean:
	rm -rf $(VENV) tests/servers/azurite/node_modules .mypy_cache .ruff_cache .hypothesis
