# Two commands are enough: `make demo` and `make test`. Both need only Python 3.11+ and make.

VENV := .venv
BIN := $(VENV)/bin
IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# The Python of .venv, or the first that is new enough. `make test PYTHON=python3.12` makes .venv anew with another.
PYTHON ?= $(shell $(BIN)/python -c 'import pip; $(IS_NEW_ENOUGH)' 2>/dev/null && echo $(BIN)/python && exit; \
	for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
INSTALLED := $(VENV)/.installed-$(VERSION)
READY := $(VENV)/.ready-$(VERSION)

# Settings of the caller's shell must not leak into the environment that is made here, nor make every process that a
# test starts compile all that it imports. The order of sets is the same in every run; a soak changes it.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PYTHONHASHSEED ?= 0
PYTEST := $(BIN)/python -m pytest
ON_TWO_CORES := $(PYTEST) -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check types rules soak bench bench-stores bench-server lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## a workflow is killed, resumes in another process, asks a person, and repeats nothing
	@$(BIN)/perdure demo

test: check ## everything CI runs: check, then every test
	$(ON_TWO_CORES) --ignore tests/test_architecture.py --ignore tests/test_words.py --ignore tests/typing tests

quick: check ## check, unit tests, and the stores' contract on memory and SQLite
	$(ON_TWO_CORES) tests/unit tests/conformance/test_memory.py tests/conformance/test_sqlite.py

check: $(READY) ## lint, formatting, types, import rules, typing tests
	@$(MAKE) --no-print-directory -j 2 types rules

types: ## one half of check: mypy and the typing tests
	$(BIN)/mypy
	$(PYTEST) -q tests/typing

rules: ## the other half: ruff, import rules, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYTEST) -q tests/test_architecture.py tests/test_words.py

soak: $(READY) ## the same properties, explored for long with new seeds, and thousands of kills
	PYTHONHASHSEED=random PERDURE_SOAK=1 $(ON_TWO_CORES) --timeout 1800 tests

bench: $(READY) ## measure the engine
	$(BIN)/python benchmarks/engine.py

bench-stores: $(READY) ## measure the stores
	$(BIN)/python benchmarks/stores.py

bench-server: $(READY) ## measure the server
	$(BIN)/python benchmarks/server.py

setup: $(READY) ## make .venv with everything pinned in requirements.lock (done by itself where needed)

lock: $(READY) ## renew requirements.lock from pyproject.toml (UPGRADE=1 takes the newest versions)
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header --quiet \
		$(if $(UPGRADE),--upgrade) --output-file requirements.lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The lock holds hashes, so what is installed is what was tested. First perdure with what it needs and what builds it;
# pip fails if one of these is missing here.
NEEDED := click colorama hatchling markdown-it-py mdurl msgspec packaging pathspec pluggy pygments rich tomlkit \
	trove-classifiers
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
UV = UV_PYTHON=$(BIN)/python $(BIN)/uv --quiet --no-cache --system-certs
choose = awk -v names=' $(1) ' '/^[^ \#]/ { split($$0, parts, "="); is_one = index(names, " " parts[1] " ") } is_one'

# Two versions of Agent Framework, each in a folder of its own: tests run the same programs with it and with perdure.
FRAMEWORK = $(PIP) install --require-hashes --no-deps --upgrade --target $(VENV)/agent-framework-$$version \
	-r tests/compat/beside/agent-framework-$$version.txt

$(INSTALLED): requirements.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "perdure needs Python 3.11 or newer, and none was found on PATH." \
		"Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c '$(IS_NEW_ENOUGH)' || { echo "perdure needs Python 3.11 or newer;" \
		"$(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -c 'import sys, pip; sys.exit("%d.%d" % sys.version_info[:2] != "$(VERSION)")' 2>/dev/null || \
		{ rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || { rm -rf $(VENV); echo "$(PYTHON) could not make a virtual" \
		"environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(call choose,$(NEEDED)) requirements.lock > $(VENV)/needed.txt
	$(PIP) install --require-hashes -r $(VENV)/needed.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# pip installs uv from the lock, and uv the rest in seconds; where uv cannot reach the packages (it does not read pip's
# settings) pip does it all.
$(READY): $(INSTALLED) $(wildcard tests/compat/beside/agent-framework-*.txt)
	@$(call choose,uv) requirements.lock > $(VENV)/uv.txt
	$(PIP) install --require-hashes -r $(VENV)/uv.txt
	$(UV) pip install --require-hashes -r requirements.lock || \
		{ echo "uv could not install; trying with pip" >&2; $(PIP) install --require-hashes -r requirements.lock; }
	@for version in 1.13 1.23; do $(FRAMEWORK) || exit 1; done
	@touch $@
