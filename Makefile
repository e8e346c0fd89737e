# Seven words: setup serve test check fix bench ui (and test-full for the long campaigns).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
# A pinned tool's own download stays inside the checkout.
export PYRIGHT_PYTHON_CACHE_DIR := $(CURDIR)/$(VENV)/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: setup serve test test-full check fix bench ui clean help
.DEFAULT_GOAL := help

help:
	@echo "make setup      .venv with pinned dependencies and the tether command"
	@echo "make serve      start the web app (not there yet)"
	@echo "make test       the tests (make test-full adds the long campaigns)"
	@echo "make check      formatting, lint, types, floors"
	@echo "make fix        what can be mended by machine"
	@echo "make bench      the table of ratios against C and the peers"
	@echo "make ui         build the browser UI (not there yet)"

setup: $(VENV)/.installed

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tether needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make setup PYTHON=python3.12"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.python requirements/runtime.txt requirements/screen.txt requirements/dev.txt pyproject.toml
	@echo "installing the pinned packages"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@$(PIP) install --require-hashes -r requirements/screen.txt || \
	  echo "no terminal emulator for this platform: everything works but the screen view"
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

serve: setup
	@echo "The web app is not there yet. What is: $(BIN)/tether exec --help"

test: setup
	@tests/install-programs
	@$(BIN)/python -X dev -m pytest -n 2 -q -m "not long"

test-full: setup
	@tests/install-programs
	@$(BIN)/python -X dev -m pytest -q

check: setup
	@$(BIN)/ruff format --check --quiet . && echo "format ok"
	@$(BIN)/ruff check --quiet . && echo "lint ok"
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/pyright --pythonpath $(BIN)/python --pythonplatform Windows src/tether/process/*_windows.py src/tether/process/_stopping.py
	@$(BIN)/lint-imports --no-logo

fix: setup
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

$(VENV)/.bench: $(VENV)/.installed requirements/bench.txt
	@$(PIP) install --require-hashes -r requirements/bench.txt
	@touch $@

bench: $(VENV)/.bench
	@$(BIN)/python -m bench $(BENCH)

ui:
	@echo "The browser UI is not there yet; the command line is: $(BIN)/tether --help"

clean:
	rm -rf $(VENV) .ruff_cache .hypothesis .import_linter_cache build dist
