# On a machine with Python 3.11 or newer: `make demo` opens the demo room, `make test` tests.
.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/runtime ## set up and open the demo room
	$(PY) gpuroom.py demo

test: $(VENV)/dev ## set up and run the tests
	$(PY) -m pytest $(PYTEST_ARGS)

check: lint types imports ## everything but the tests

lint: $(VENV)/dev ## ruff
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/dev ## mypy, strict
	$(PY) -m mypy

imports: $(VENV)/dev ## the layers hold
	$(VENV)/bin/lint-imports

coverage: $(VENV)/dev ## tests with branch coverage
	$(PY) -m pytest --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

snapshots: $(VENV)/dev ## accept the screens as they are now
	$(PY) -m pytest tests/snapshots --snapshot-update

docs: $(VENV)/dev ## rewrite what is generated: picture, keys, readings
	$(PY) benchmarks/screenshot.py docs/room.svg
	$(PY) gpuroom.py keys --markdown > docs/keys.md

lock: $(VENV)/dev ## take the newest versions that pyproject.toml allows
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --no-emit-index-url pyproject.toml -o requirements.lock
	$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --no-emit-index-url --group dev pyproject.toml -o requirements-dev.lock

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist

# A virtual environment. Debian and Ubuntu split `venv` off into a package of its own.
$(VENV)/made:
	@test -n "$(PYTHON)" || { echo "gpuroom needs Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		set -- apt-get install -y -q python3-venv; [ "$$(id -u)" = 0 ] || set -- sudo "$$@"; \
		echo "$$@" && "$$@" && $(PYTHON) -m venv $(VENV); }
	@touch $@

$(VENV)/runtime: requirements.lock $(VENV)/made
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/dev: requirements-dev.lock $(VENV)/made
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@ $(VENV)/runtime

.PHONY: help demo test check lint types imports coverage snapshots docs lock clean
