# Each target makes what it needs. `make` lists them.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The pythons that are tried for the virtual environment, in this order; `make PYTHON=…` tries only that one.
ifeq ($(origin PYTHON),undefined)
PYTHONS := python3 python3.13 python3.12 python3.11
else
PYTHONS := $(PYTHON)
endif
SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

export DO_NOT_TRACK := 1

.PHONY: help install install-dev demo up down test test-chaos eval bench check format lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- use ---

install: $(VENV)/.installed ## Make .venv with the locked dependencies and `sourcemill` in it

demo: install ## Show the whole path on sample documents (DOCS=path ASK="…" KEEP=1)
	@$(BIN)/sourcemill demo $(if $(DOCS),--docs "$(DOCS)") $(if $(ASK),--ask "$$ASK") $(if $(KEEP),--keep)

up: install ## Run the stack in the foreground; Ctrl-C stops it
	@$(BIN)/sourcemill up

down: install ## Stop the stack
	@$(BIN)/sourcemill down

# --- develop ---

install-dev: $(VENV)/.installed-dev ## As install, with the tools for tests and checks

test: install-dev ## Run the tests that can run on this machine (T=path for a part)
	$(BIN)/pytest $(T)

test-chaos: install-dev ## Kill processes in the middle of work and prove that nothing is lost or doubled
	$(BIN)/pytest tests/e2e/test_kills*.py

eval: install-dev ## Measure the quality of answers and retrieval
	$(BIN)/pytest tests/evals

bench: install-dev ## Measure speed and memory on real files, next to the engines alone (needs the measurement data)
	$(BIN)/python -m tests.benchmarks

check: install-dev ## Lint, formatting, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install-dev ## Format the code and repair what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

LOCK := uv pip compile pyproject.toml --python-version 3.11 --universal --generate-hashes --no-emit-index-url \
	--no-header --no-annotate --quiet

lock: ## Write the lock files anew (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv/" >&2; exit 1; }
	$(LOCK) --extra build --upgrade --output-file requirements.lock
	$(LOCK) --extra build --extra dev --constraint requirements.lock --output-file requirements-dev.lock

clean: ## Remove the virtual environment, caches and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- how ---

export ASK

$(VENV)/.made:
	@for python in $(PYTHONS); do \
		if $$python -c '$(SUITABLE)' 2>/dev/null; then \
			echo "Making $(VENV) with $$($$python --version)"; \
			$$python -m venv $(VENV) && touch $@ && exit 0; \
			exit 1; \
		fi; \
	done; \
	echo "Sourcemill needs Python 3.11, 3.12 or 3.13 with venv; none of these is one: $(PYTHONS)." >&2; \
	echo "Install one (on Debian and Ubuntu also python3-venv), or name it: make PYTHON=/path/to/python3.12" >&2; \
	exit 1

$(VENV)/.installed: $(VENV)/.made requirements.lock pyproject.toml
	@echo "Installing the locked dependencies"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@echo "Installing the tools for tests and checks"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@
