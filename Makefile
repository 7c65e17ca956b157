PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PACKAGES := fairlane producer dispatcher admin_ui
SHIPPED := -name '*.py' -o -name '*.lua' -o -name py.typed -o -path '*/templates/*.html' -o -path '*/static/*' -type f

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z.-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(READY) ## Make .venv (all other targets do it themselves; PYTHON=python3.13 picks another Python)

$(READY): pyproject.toml hatch_build.py admin_ui/package-lock.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'Fairlane needs Python 3.11 or newer. Name one: make PYTHON=python3.13 …' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'This Python cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $@

.PHONY: test
test: $(READY) ## Run the tests; those that need a redis-server or chromium are skipped where there is none
	$(BIN)/pytest -n 3 --dist loadgroup

.PHONY: lint
lint: $(READY) ## Check style, format, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

.PHONY: format
format: $(READY) ## Put the code in the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: wheel
wheel: $(READY) ## Build sdist and wheel into dist/ and try the wheel in a scratch venv, bare and with all extras
	rm -rf build dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/python -m venv build/venv
	build/venv/bin/python -m pip install --quiet dist/*.whl
	cd build && venv/bin/fairlane --help > /dev/null && venv/bin/python -c 'from fairlane import Client; Client("redis://x")'
	build/venv/bin/python -m pip install --quiet "$$(echo dist/*.whl)[all]"
	find $(PACKAGES) $(SHIPPED) | sort > build/expected
	cd build/venv/lib/python*/site-packages && \
		find $(PACKAGES) $(SHIPPED) | sort | diff $(CURDIR)/build/expected -
	cd build && venv/bin/python -c 'import pkgutil; from importlib import import_module; \
		[import_module(module.name) for package in "$(PACKAGES)".split() \
		for module in pkgutil.walk_packages(import_module(package).__path__, package + ".") if "__main__" not in module.name]'

.PHONY: check
check: export FAIRLANE_TEST_REQUIRE = redis,chromium
check: lint test wheel ## All that CI runs: lint, test (here a missing redis-server or chromium is a failure), wheel

.PHONY: bench-queue
bench-queue: $(READY) ## Measure the queue
	$(BIN)/python -m benchmarks.queue

.PHONY: bench-dispatch
bench-dispatch: $(READY) ## Measure the dispatcher on simulated backends and null:// (about 6 minutes)
	$(BIN)/python -m benchmarks.dispatch

.PHONY: bench-capacity
bench-capacity: $(READY) ## Measure the learner of capacities in virtual time (about 3 minutes)
	$(BIN)/python -m benchmarks.capacity

.PHONY: bench-scrape
bench-scrape: $(READY) ## Measure what reading a metrics page costs, beside prometheus_client's parser
	$(BIN)/python -m benchmarks.scrape

.PHONY: bench-vllm
bench-vllm: $(READY) ## Measure before a real vLLM, if one is in FAIRLANE_VLLM_DIR; through `fairlane up` too
	$(BIN)/python -m benchmarks.vllm
	$(BIN)/python -m benchmarks.vllm --up
	$(BIN)/python -m benchmarks.vllm --up --stream

.PHONY: bench-tiers
bench-tiers: $(READY) ## Measure tiers beside an ideal scheduler, and two backends as one pool, simulated and real (30 min)
	@held=0; for what in 'tiers --simulated' 'two --simulated' tiers two; do \
		$(BIN)/python -m benchmarks.$$what || held=1; done; exit $$held

.PHONY: bench-boost
bench-boost: $(READY) ## Measure in virtual time what the boost and its thermostat are worth (about 5 minutes)
	$(BIN)/python -m benchmarks.boost

.PHONY: bench-affinity
bench-affinity: $(READY) ## Measure what prefix affinity is worth, by the counters of two real vLLM
	$(BIN)/python -m benchmarks.affinity

.PHONY: bench-batch
bench-batch: $(READY) ## Measure a batch of 50,000 lines, then one while every process is killed once (about 20 minutes)
	@held=0; for how in '' --kill; do $(BIN)/python -m benchmarks.batch $$how || held=1; done; exit $$held

.PHONY: bench-webhooks
bench-webhooks: $(READY) ## Measure 10,000 webhooks to 50 endpoints, some dead, while processes and Redis are killed (3 min)
	$(BIN)/python -m benchmarks.webhooks

.PHONY: bench-api
bench-api: $(READY) ## Measure the front door: what it adds to one request, and how soon many waiters are told
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.waiters

.PHONY: bench-admin
bench-admin: $(READY) ## Measure the admin page at 1,000,000 jobs and 10,000 tenants (about 4 minutes)
	$(BIN)/python -m benchmarks.admin

.PHONY: bench-streams
bench-streams: $(READY) ## Measure 200 streams and 1,000 long polls on one front door, and the first token (3 minutes)
	$(BIN)/python -m benchmarks.streams

.PHONY: bench-peers
bench-peers: build/peers/.ready ## Measure Fairlane beside taskiq-redis, Dramatiq, Huey, RQ and Celery on one Redis (10 minutes)
	build/peers/bin/python -m benchmarks.peers

build/peers/.ready: pyproject.toml | $(READY)
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	build/peers/bin/python -m pip install --quiet --editable '.[server]' --group peers
	@touch $@

.PHONY: bench-model
bench-model: $(READY) ## Measure the simulator's model beside a real vLLM, same requests, and write docs/profile.md (7 min)
	$(BIN)/python -m benchmarks.model --write

.PHONY: experiments
experiments: $(READY) ## Reproduce docs/experiments/ (about an hour; ONLY=tiers for one; TRACES=DIR names the traces)
	$(BIN)/python -m benchmarks.experiments $(ONLY) $(if $(TRACES),--traces '$(TRACES)')

.PHONY: screenshots
screenshots: $(READY) ## Picture every view of the admin page, with data, into docs/images/admin/ (needs chromium)
	$(BIN)/python -m tests.browser.screenshots

.PHONY: demo
demo: $(READY) ## See why Fairlane exists: one heavy tenant and several light ones, with and without it
	@$(BIN)/python -m demo

.PHONY: clean
clean: ## Remove .venv and everything built or cached
	rm -rf .venv build dist .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
