# Two commands do everything on a machine that has Python, git and make: `make run` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help run test browser lint format messages check crash bench clean

BIN := .venv/bin
LAUNCHER := bin/launcher.py bin/launch

# Only what stands on the command line counts: some shells export HOST.
from_command_line = $(if $(filter command%,$(origin $(1))),$($(1)))

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-15s %s\n' "$$name" "$$text"; done

run: ## Start everything and print a sign-in link; HOST=0.0.0.0 PORT=9000 choose the address; Ctrl-C stops it
	@exec bin/run $(if $(call from_command_line,HOST),--host $(HOST)) $(if $(call from_command_line,PORT),--port $(PORT))

test: ## Run the test suite; ARGS="-k words" goes to pytest
	@exec bin/test $(ARGS)

browser: ## Drive the pages by Chromium; ARGS="-k words" goes to pytest
	@exec bin/test -m browser $(ARGS)

lint: ## Check style, types, imports, migrations, the API's description and templates
	@bin/bootstrap
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=bin $(BIN)/mypy --explicit-package-bases $(LAUNCHER) bin/messages.py
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py spectacular --validate --fail-on-warn --file /dev/null
	$(BIN)/djlint templates --check --lint

format: ## Bring code and templates into the house's shape
	@bin/bootstrap
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djlint templates --reformat --quiet

messages: ## Take texts of templates and Python into the catalogues of translations, and compile them
	@bin/bootstrap
	$(BIN)/python bin/messages.py

check: lint test ## Lint, then test; .ci/run adds the browser, Redis, crashes and the oldest PostgreSQL

# Twice as many workers as cores: nearly all of the time leases and restarts are waited for.
crash: ## Kill and stop real workers at every step of a turn, and check what must hold
	@bin/bootstrap
	@exec bin/with-services $(BIN)/python -m pytest -n $${TEST_WORKERS:-$$(($$(getconf _NPROCESSORS_ONLN) * 2))} --dist worksteal -m crash tests/crash tests/replay $(ARGS)

bench: ## Run the benchmarks; ARGS="ingest 20000" names one
	@exec bin/bench $(ARGS)

clean: ## Remove caches and build leftovers; .venv and the data in .state stay
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache test-results
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
