# Needs python3 (3.11 or newer), its pip and make; everything else is fetched into .venv. Start with `make`.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
NODE := tests/compat/node
DOCS := docs/cli.md docs/mcp.md docs/states.md

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint check format docs bench stress coverage mutation clean node-modules

help: ## show this list
	@echo "subagent: what can be made"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

demo: $(READY) ## a complete conversation between a parent and a child agent, to watch
	@$(PY) examples/demo/demo.py

test: $(READY) node-modules ## every test, and the proof of every claimed requirement
	@$(PY) -m pytest -n $(JOBS) --dist worksteal --contract

lint: $(READY) ## format, lint, types, import rules and generated documents, all without changing anything
	@$(PY) -m ruff format --check --quiet . || { echo "format: run 'make format'"; exit 1; }
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy --no-error-summary
	@$(VENV)/bin/lint-imports --no-logo > $(VENV)/imports.txt 2>&1 || { cat $(VENV)/imports.txt; exit 1; }
	@$(PY) -m cogapp --check --verbosity=1 --check-fail-msg="run 'make docs'" $(DOCS)
	@echo "lint: format, rules, types, imports and documents are in order"

check: lint test ## the definition of done: lint and test

format: $(READY) ## format the code and mend what can be mended by machine
	@$(PY) -m ruff check --fix --exit-zero --quiet .
	@$(PY) -m ruff format --quiet .
	@$(PY) -m ruff check --quiet .

docs: $(READY) ## write the generated parts of the documents anew
	@$(PY) -m cogapp -r --verbosity=1 $(DOCS)

bench: $(READY) node-modules ## measure ourselves beside our yardsticks
	@$(PY) scripts/bench.py

stress: $(READY) node-modules ## some twenty minutes of trying to lose something, and a table of what came of it
	@$(PY) -m pytest --stress -n $(JOBS) --dist load --maxschedchunk 1 -o faulthandler_timeout=0 tests/stress

coverage: $(READY) node-modules ## which branches of core, store, process and services the tests walk
	@$(PY) scripts/measure.py

mutation: $(READY) ## change core in small ways, and see whether its tests notice
	@$(PY) scripts/mutation.py

clean: ## remove all that make has made
	@rm -rf $(VENV) build dist $(NODE)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml scripts/bootstrap.py
	@echo "setting up $(VENV) (once, and again when pyproject.toml changes)"
	@$(PYTHON) scripts/bootstrap.py $(VENV)
	@$(PY) -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The tests that need node say so and are left out without it, so nothing in here may stop the others.
node-modules:
	@if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then \
		echo "node or npm is missing: what needs them is left out"; \
	elif [ $(NODE)/node_modules/.ready -nt $(NODE)/package.json ] && [ $(NODE)/node_modules/.ready -nt $(NODE)/package-lock.json ]; then \
		:; \
	elif (cd $(NODE) && npm ci --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000 </dev/null >/dev/null 2>&1); then \
		touch $(NODE)/node_modules/.ready; \
	else \
		echo "npm could not install $(NODE): what needs it is left out"; \
	fi
