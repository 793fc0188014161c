# All targets use the same environment. `make help` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
EXAMPLES ?= 400
MUTANTS ?= 20000
SEED ?= $(shell date +%s)
QUICK := $(addprefix tests/unit/,mappings mappings_identity connectors_api connectors_contract pipelines cli_output)
# On a terminal pip shows its progress; a log gets no line per package.
QUIET := $$(test -t 2 || echo --quiet)
VENV := .venv
BIN := $(VENV)/bin
export DAGSTER_DISABLE_TELEMETRY := yes
# pytest caches the test modules that it rewrites, so that the workers do not repeat it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-sources ui test quick typed checked tested quick-tested bench bench-quick torture hunt reliability month docs docs-serve reference lock audit clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("eventsync needs Python 3.11 to 3.13; run make PYTHON=python3.12" if not (3, 11) <= sys.version_info[:2] < (3, 14) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the $$(grep -c '==' requirements.lock) packages of requirements.lock into $(VENV), which takes a minute or so"
	$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q eventsync pipelines connectors mappings state sandbox
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed requirements-test.lock
	@echo "installing the $$(grep -c '==' requirements-test.lock) packages of requirements-test.lock"
	$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --require-hashes -r requirements-test.lock
	touch $@

demo: $(VENV)/.installed ## sandbox service, three sample feeds through Dagster, twice; prints what happened to every row
	$(BIN)/eventsync demo

demo-sources: $(VENV)/.installed-test ## the demo with a Google sheet, a Salesforce org, a JSON API and a database, simulated on this machine (UI=1 leaves the UI running)
	PYTHONPATH=tests $(BIN)/python -m lookalikes.demo $(if $(UI),--ui)

ui: $(VENV)/.installed ## the demo, left running: Dagster UI and sandbox pages
	$(BIN)/eventsync ui --demo

test: $(VENV)/.installed-test ## format, lint, types, import contracts, mapping examples, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory --jobs 2 checked tested

quick: $(VENV)/.installed-test ## format, lint, types and the tests without processes, database servers or browsers, under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory --jobs 2 typed quick-tested

typed:
	$(BIN)/mypy

quick-tested:
	$(BIN)/pytest --numprocesses logical --dist worksteal -m "not slow" $(QUICK)

checked: typed # runs in parallel with the tests, which leave a core free
	$(BIN)/lint-imports --no-logo
	$(BIN)/eventsync check

tested:
	$(BIN)/pytest --numprocesses auto --dist worksteal

bench: $(VENV)/.installed-test ## all benchmarks, compared with other tools, 35 minutes; writes docs/performance.md (BENCH="--only published")
	$(BIN)/python benchmarks/bench.py $(BENCH)

bench-quick: $(VENV)/.installed-test ## the benchmarks with few rows; only prints, compares with no budget
	$(BIN)/python benchmarks/bench.py --quick $(BENCH)

torture: $(VENV)/.installed-test ## kill hundreds of runs on SQLite and PostgreSQL, print a table of the results (TORTURE="--seed 7 --kills 50")
	PYTHONPATH=tests $(BIN)/python -m torture $(TORTURE)

hunt: $(VENV)/.installed-test ## property and state machine tests with hundreds of random examples (HUNT="--hypothesis-seed 7", EXAMPLES=2000, MUTANTS=500, SEED=7)
	EVENTSYNC_TEST_PROFILE=hunt EVENTSYNC_TEST_EXAMPLES=$(EXAMPLES) EVENTSYNC_TEST_MUTANTS=$(MUTANTS) EVENTSYNC_TEST_DAMAGES=$(EXAMPLES) EVENTSYNC_TEST_MUTANTS_SEED=$(SEED) $(BIN)/pytest tests/property --numprocesses auto -o faulthandler_timeout=0 $(HUNT)

reliability: $(VENV)/.installed-test ## every fault with every way a service treats keys; writes docs/reliability.md (RELIABILITY="--only reset")
	PYTHONPATH=tests $(BIN)/python -m reliability $(RELIABILITY)

month: $(VENV)/.installed-test ## a month of schedules in simulated time, about a minute; writes the table in docs/a-month.md
	PYTHONPATH=tests $(BIN)/python -m month.page

docs: $(VENV)/.installed-test ## build the pages of docs/ as a site in site/; checks every link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml

docs-serve: $(VENV)/.installed-test ## serve the site at http://127.0.0.1:8000, rebuilt when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload --config-file docs/site/mkdocs.yml

reference: $(VENV)/.installed-test ## write the pages and schemas that are generated from the code
	PYTHONPATH=tests $(BIN)/python -m reference_pages

lock: ## compile the lock files (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --no-strip-extras \
	  --extra sheets --extra salesforce --extra postgres --extra notify --output-file requirements.lock pyproject.toml build-tools.in
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --no-strip-extras \
	  --extra test --extra docs --extra sheets --extra salesforce --extra postgres --extra sftp --extra s3 \
	  --extra dagster-postgres --extra notify --output-file requirements-test.lock pyproject.toml build-tools.in --constraint requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --no-strip-extras \
	  --extra sheets --extra salesforce --extra postgres --extra dagster-postgres --extra kubernetes --extra sftp --extra s3 --extra gcs \
	  --extra azure --extra notify --output-file deploy/requirements.lock pyproject.toml build-tools.in --constraint requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --no-strip-extras \
	  --output-file deploy/celery/requirements.lock deploy/celery/requirements.in --constraint deploy/requirements.lock

audit: $(VENV)/.installed-test ## compare the pinned versions with the known advisories of a list, and of pip-audit where it is installed
	$(BIN)/python deploy/audit.py

clean: ## delete the environment, the demo data and the site
	rm -rf $(VENV) .eventsync site
