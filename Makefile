# `make help` lists the targets. A new machine needs only python3 and make; the first target sets up the rest.

SHELL := /bin/sh
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
PYTEST_ARGS ?=

.PHONY: help run demo test test-deep venv servers lint fuzz soak bench lock docs reference man conformance evidence screenshots vendor

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

run: $(STAMP) ## a sample origin behind the gate on 127.0.0.1:8080, and three commands to try
	@exec $(BIN)/headgate serve --demo

demo: $(STAMP) ## an overload with and without headgate, live in the terminal, in two minutes
	@exec $(BIN)/headgate demo

test: $(STAMP) ## the tests that every change needs, on all cores
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "not deep" $(PYTEST_ARGS)

test-deep: $(STAMP) ## what `make test` leaves out: the slow tests, and each property on many more examples
	@$(BIN)/python -m pytest -n auto --dist worksteal -m "deep or hypothesis" --hypothesis-profile=deep $(PYTEST_ARGS)

venv: $(STAMP) ## set up .venv only
	@:

servers: ## install the real servers that tests use (Debian, as root)
	@sh scripts/servers.sh

lint: $(STAMP) ## style, types, layers, the purity of the cores, and the weight of the tree
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/zizmor --offline --quiet .github/workflows
	@$(BIN)/python scripts/weight.py

fuzz: SECONDS ?= 600
fuzz: $(STAMP) ## fuzz each parser of untrusted input, for SECONDS=600 each
	@mkdir -p build/fuzz
	@for target in wire bundle advice http1 proxy_protocol signatures identity; do \
		echo "$$target, $(SECONDS) s; inputs that are findings go to build/fuzz"; \
		$(BIN)/python -m tests.fuzz.run $$target -max_total_time=$(SECONDS) -artifact_prefix=build/fuzz/$$target- || exit 1; done

soak: SECONDS ?= 900
soak: $(STAMP) ## load a gate with faults for SECONDS=900, and see that memory and descriptors stay flat
	@$(BIN)/python -m bench.soak $(SECONDS)

bench: $(STAMP) ## measure ratios to other programs
	@$(BIN)/python -m bench

docs: $(STAMP) ## build the documentation site, build/site, and check its links
	@$(BIN)/python -m scripts.docs

reference: $(STAMP) ## write the reference pages that are generated from the code, to build/reference
	@$(BIN)/python -m scripts.reference

man: $(STAMP) ## write a man page for each command, to build/man
	@$(BIN)/python -m scripts.man

conformance: $(STAMP) ## list the quoted sentences of the four documents and their tests, in build/conformance
	@$(BIN)/python scripts/conformance.py

evidence: $(STAMP) ## run what docs/evidence.md cites, print its tables and draw the plots (20 minutes)
	@$(BIN)/python -m lab attack
	@$(BIN)/python -m lab downtime
	@$(BIN)/python -m lab ablation
	@$(BIN)/python -m lab sensitivity
	@$(BIN)/python -m bench.concurrency_laws
	@$(BIN)/python -m bench.simulated_gate
	@$(BIN)/python -m lab.figures

screenshots: $(STAMP) ## take the pictures of the dashboard, docs/pictures/dashboard-*.png (three minutes, needs chromium)
	@$(BIN)/python -m scripts.screenshots

vendor: ## fetch the JavaScript library of the dashboard again, and check its digest
	@sh scripts/vendor.sh

lock: ## write requirements/*.txt: exact versions and hashes
	@sh scripts/lock.sh

# uv, itself checked against its hash, installs the locked packages within seconds where pip takes a minute.
# niquests needs a fork of urllib3 that takes the place of urllib3 itself unless it is built so that it does not.
$(STAMP): pyproject.toml requirements/dev.txt requirements/niquests.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "headgate needs Python 3.11 or newer; try `make venv PYTHON=python3.13`")'
	@echo "setting up .venv, in about a minute" >&2
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements/dev.txt
	@URLLIB3_NO_OVERRIDE=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-build-isolation \
		--no-binary urllib3-future --requirement requirements/niquests.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
