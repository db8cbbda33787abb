# Two commands are enough: `make demo` and `make test`. Both need only Python 3.11+ and make.

# The first Python that is new enough; choose another with `make setup PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Settings of the caller's shell must not leak into the environment that is made here.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

.DEFAULT_GOAL := help
.PHONY: help setup demo test check soak bench lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything pinned in requirements.lock (done by itself where needed)

demo: $(READY) ## a workflow is killed, resumes in another process, asks a person, and repeats nothing
	@$(BIN)/perdure demo

test: check ## everything CI runs: check, then every test
	$(BIN)/python -m pytest -n 2 --dist worksteal tests

check: $(READY) ## lint, formatting, types, import rules, typing tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --durations=0 --durations-min=5 tests/test_architecture.py tests/typing

soak: $(READY) ## the same properties, explored for long, and thousands of kills
	PERDURE_SOAK=1 $(BIN)/python -m pytest -n 2 --dist worksteal --timeout 1800 tests

bench: $(READY) ## measure the engine
	$(BIN)/python benchmarks/engine.py

lock: $(READY) ## renew requirements.lock from pyproject.toml (UPGRADE=1 takes the newest versions)
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header --quiet \
		$(if $(UPGRADE),--upgrade) --output-file requirements.lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The lock holds hashes, so what is installed is what was tested. pip installs uv from the lock, and uv the rest in
# a second or two; where uv cannot reach the packages (it does not read pip's settings) pip does it all.
$(READY): requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "perdure needs Python 3.11 or newer, and none was found on PATH." \
		"Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "perdure needs Python 3.11 or newer;" \
		"$(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || { rm -rf $(VENV); echo "$(PYTHON) could not make a virtual" \
		"environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@awk '/^[^ #]/ { uv = /^uv==/ } uv' requirements.lock > $(VENV)/uv.txt
	$(PIP) install --require-hashes -r $(VENV)/uv.txt
	$(UV) pip install --require-hashes -r requirements.lock || \
		{ echo "uv could not install; trying with pip" >&2; $(PIP) install --require-hashes -r requirements.lock; }
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
UV = UV_PYTHON=$(BIN)/python $(BIN)/uv --quiet --no-cache --system-certs
