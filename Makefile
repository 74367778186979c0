# `make` lists what there is. Needs Python 3.11, 3.12 or 3.13 with its venv module, git and make; no root, no compiler, no container.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV ?= .venv
PYTHON ?=
ARGS ?=
# a stack is many processes: each would compile all modules anew where a machine is told to keep no bytecode
export PYTHONDONTWRITEBYTECODE :=
# test processes: tests wait more than they compute, so more than there are processors
JOBS ?= 4
BIN := $(VENV)/bin
PY := $(BIN)/python
UV_COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--only-binary :all: --no-emit-index-url --no-emit-find-links --no-header --no-annotate $(if $(UPGRADE),--upgrade)
CHECKS := check-format check-lint check-types check-imports check-schemas check-tidy

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo up
demo: venv ## start the whole stack on this machine, run jobs through it, show what happened, stop it
	@$(BIN)/triplane demo $(ARGS)

up: venv ## start the whole stack on this machine and leave it running (`triplane down` stops it)
	@$(BIN)/triplane up --detach $(ARGS)

.PHONY: test test-demos test-storms test-kills chaos storm model
test: venv ## run all tests of what runs, on real servers (ARGS="-k words" for some of them, JOBS=0 for one process)
	@$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

test-demos: venv ## run the demonstrations as an ordinary user does, and look at what they leave behind
	@$(PY) -m pytest -m demos tests/integration/embedded $(ARGS)

test-storms: venv ## play 200 seeded storms of faults over the real cores, and find out each world without a rule by one
	@$(PY) -m pytest -n $(JOBS) --dist worksteal -m storms tests/simulation $(ARGS)

test-kills: venv ## kill each part of a whole stack while jobs go through it, restore an old backup of one, look that all ends right
	@$(PY) -m pytest -m kills tests/e2e/kills tests/integration/embedded $(ARGS)

chaos: venv ## strike a whole stack with everything there is, by a seed, while jobs go through it (SEED=1 MINUTES=3)
	@CHAOS_SEED=$(or $(SEED),1) CHAOS_MINUTES=$(or $(MINUTES),3) $(PY) -m pytest -s -m chaos tests/e2e/chaos $(ARGS)

storm: venv ## play the real cores through storms of faults on a virtual clock (SEED=0 STORMS=100 STEPS=1000)
	@$(PY) -m tests.simulation --seed $(or $(SEED),0) --storms $(or $(STORMS),100) --steps $(or $(STEPS),1000)

model: venv ## explore every interleaving of the grant protocol's models
	@$(PY) -m tests.model $(ARGS)

.PHONY: check $(CHECKS)
check: venv ## format, lint, types, import contracts, generated files, tidiness
	@$(MAKE) -k -j2 --output-sync=target $(CHECKS)

check-format: venv
	@$(BIN)/ruff format --check --quiet . || { echo "make fmt puts this right"; exit 1; }

check-lint: venv
	@$(BIN)/ruff check --quiet .

check-types: venv
	@$(BIN)/mypy

check-imports: venv
	@$(BIN)/lint-imports --cache-dir .cache/imports --no-logo

check-schemas: venv
	@$(PY) -m schemas --check && $(PY) -m deploy.settings --check && $(PY) -m services.gateway openapi --check

check-tidy: venv
	@$(PY) -m pytest --quiet tests/tidy

.PHONY: precommit
precommit: check-format check-lint check-types check-imports ## the quick half of `make check`, run before each commit

.PHONY: fmt schemas
fmt: venv ## format the code and put right what lint can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

schemas: venv ## write again what is generated: contract, settings page, OpenAPI
	@$(PY) -m schemas && $(PY) -m deploy.settings && $(PY) -m services.gateway openapi

.PHONY: venv
venv: ## make the virtual environment from the pins, when they have changed (PYTHON=python3.12 chooses)
	@.ci/venv $(VENV) $(PYTHON)

.PHONY: pins pins-check
pins: venv ## write requirements/*.txt from pyproject.toml (UPGRADE=1 takes the newest of everything)
	$(UV_COMPILE) --extra dev --extra embedded --extra otlp --output-file requirements/dev.txt
	$(UV_COMPILE) --constraint requirements/dev.txt --extra embedded --output-file requirements/embedded.txt
	$(UV_COMPILE) --constraint requirements/dev.txt --extra otlp --output-file requirements/otlp.txt
	$(UV_COMPILE) --constraint requirements/dev.txt --output-file requirements/base.txt

pins-check: venv ## prove that the pins install for each Python, by hash and from wheels only
	@for version in 3.11 3.12 3.13; do for pins in base embedded otlp dev; do \
		rm -rf .cache/pins; \
		$(BIN)/uv pip install --quiet --python-version $$version --target .cache/pins \
			--require-hashes --only-binary :all: --requirement requirements/$$pins.txt \
			&& echo "requirements/$$pins.txt installs for Python $$version" || exit 1; done; done; rm -rf .cache/pins

.PHONY: bench-pipeline bench-leases
bench-pipeline: venv ## jobs a second through all services, and where the time goes
	$(BIN)/python -m benchmarks.pipeline

bench-leases: venv ## devices a second through the lease scripts, beside plain SETs of the same client
	$(BIN)/python -m benchmarks.leases

.PHONY: bench-memory
bench-memory: venv ## what the whole stack holds in memory at rest, after 10,000 jobs and after 20,000
	$(BIN)/python -m benchmarks.pipeline --memory 10000

.PHONY: clean
clean: ## remove what tools have made (not what a running stack keeps)
	@rm -rf .cache .hypothesis .venv .venv-* .venv*.lock *.egg-info build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
