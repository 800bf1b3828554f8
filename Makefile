# Needs make and Python 3.11 or newer; everything else goes into .venv, from locks with hashes. `make` alone prints help.
SHELL := /bin/sh
.SUFFIXES:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
# Python to build .venv with. Empty: the first of these that is new enough.
PYTHON ?=
PYTHONS := python3 python3.13 python3.12 python3.11 python3.14 python
# For `make run` and `make demo`, e.g. make run ARGS="--api-port 8081".
ARGS ?=

PIP := $(PY) -m pip --disable-pip-version-check --no-input --quiet --quiet
# Hashes of every platform's wheels for Python 3.11 and newer, and no addresses: any mirror will do.
LOCK := $(PY) -m uv pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header pyproject.toml --group build
RUN_STAMP := $(VENV)/.installed-run
TEST_STAMP := $(VENV)/.installed-test

.PHONY: help setup run test test-misfires test-events check bench bench-routing demo lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(RUN_STAMP) ## make .venv with what `make run` needs

run: $(RUN_STAMP) ## start the whole stack: Postgres, Temporal, API, router, worker (ARGS="--api-port 8081")
	@exec $(PY) -m activity_core dev $(ARGS)

test: $(TEST_STAMP) ## run the tests (PYTEST_ADDOPTS="-k cron" narrows them)
	@$(PY) -m pytest -q

test-misfires: $(TEST_STAMP) ## each misfire policy under each cause, kills, floods; on both schedulers of Temporal (half an hour)
	@$(PY) -m pytest -q -s -m "slow or not slow" tests/misfires
	@ACTIVITY_CORE_TEST_CHASM=1 $(PY) -m pytest -q -s -m "slow or not slow" tests/misfires tests/services/test_schedules.py tests/spine

test-events: $(TEST_STAMP) ## 10,000 events under kills -9, 20,000 made-up requests (twenty minutes)
	@$(PY) -m pytest -q -s -m "slow or not slow" tests/events

check: $(TEST_STAMP) ## ruff, mypy --strict, import rules
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { echo "some files are not formatted: .venv/bin/ruff format ."; exit 1; }
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports

bench: $(TEST_STAMP) ## measure our cost against a bare FastAPI and a bare Temporal workflow
	@$(PY) -m benchmarks $(ARGS)

bench-routing: $(TEST_STAMP) ## what routing costs with 10,000 activities against ten
	@$(PY) -m benchmarks.routing $(ARGS)

demo: $(RUN_STAMP) ## load the examples into a running stack and show their runs
	@$(PY) examples/demo.py $(ARGS)

lock: $(TEST_STAMP) ## renew requirements/*.txt from pyproject.toml
	@$(PIP) install uv==0.13.9
	@$(LOCK) --upgrade --extra test --output-file requirements/test.txt
	@$(LOCK) --extra dev --constraint requirements/test.txt --output-file requirements/run.txt
	@$(LOCK) --constraint requirements/test.txt --output-file requirements/image.txt

clean: ## remove .venv and caches (the data in .activity-core stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# One environment for both: the test lock holds the run lock's versions and more.
$(RUN_STAMP): requirements/run.txt pyproject.toml | $(PY)
	@echo "installing into $(VENV) (once)"
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(TEST_STAMP): requirements/test.txt pyproject.toml | $(PY)
	@echo "installing into $(VENV), with the test tools (once)"
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/test.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@ $(RUN_STAMP)

$(PY):
	@for python in $(PYTHON) $(if $(PYTHON),,$(PYTHONS)); do \
		"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || continue; \
		rm -rf $(VENV); \
		"$$python" -m venv $(VENV) && exit 0; \
		rm -rf $(VENV); \
		echo "$$python can't make a virtual environment. On Debian and Ubuntu: apt install python3-venv" >&2; \
		exit 1; \
	done; \
	echo "no Python 3.11 to 3.14 found (tried: $(or $(PYTHON),$(PYTHONS))). Name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
	exit 1
