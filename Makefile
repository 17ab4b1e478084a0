# `make serve` and `make test` install all that they need. PYTHON selects the interpreter, which must
# be 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXTRAS ?= $(shell sed -n 's/^\# *make lock EXTRAS="\(.*\)"$$/\1/p' deploy/requirements.txt)
# The command in the header of a lock file, and the oldest Python that the file must work with.
LOCK_COMMAND = make lock$(if $(EXTRAS), EXTRAS="$(EXTRAS)")
OLDEST_PYTHON = $(shell sed -n 's/^python_requires = >=//p' setup.cfg)
LOCK = UV_CUSTOM_COMPILE_COMMAND='$(LOCK_COMMAND)' $(BIN)/uv pip compile --quiet \
  --universal --python-version $(OLDEST_PYTHON) --generate-hashes --no-annotate
LINTERS = 'ruff check' mypy
# Run all tools in a list, and fail at the end if one of them failed.
run_all = failed=; \
  for tool in $(1); do \
    echo "$(BIN)/$$tool"; \
    $(BIN)/$$tool || failed=1; \
  done; \
  test -z "$$failed"
SOURCES := setup.cfg setup.py pyproject.toml $(wildcard protos/*.proto)
TEST_REQUIREMENTS := $(wildcard tests/*/requirements.txt)

.PHONY: serve test conformance check lint format lock version clean help

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

serve: $(VENV)/.serve  ## run the service: REST on port 8080, gRPC on port 8081
	$(BIN)/gunicorn 'app:create_app()'

test: $(VENV)/.dev  ## run the tests; ARGS=tests/FILE.py selects a file
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) $(ARGS)

conformance: $(VENV)/.serve  ## test the code with the suite of the Open Inference Protocol; ARGS="--rule R9" selects a rule
	$(BIN)/python tests/run_conformance.py $(ARGS)

check: $(VENV)/.dev  ## run lint and the fast tests, before a commit
	@$(call run_all,$(LINTERS) 'python -m pytest $(PYTEST_OPTIONS) $(FAST_TESTS)')

lint: $(VENV)/.dev  ## find errors in code and types
	@$(call run_all,$(LINTERS))

format: $(VENV)/.dev  ## format the code
	@$(BIN)/ruff format --quiet  # first, so that `ruff check` reports only what it cannot fix
	@$(call run_all,'ruff check --fix' 'ruff format')

# EXTRAS defaults to the extras of the current lock file. ARGS=--upgrade selects newer versions.
lock: $(VENV)/.lock  ## write deploy/requirements*.txt for the image; EXTRAS=tracing adds an extra
	$(LOCK) $(patsubst %,--extra=%,$(EXTRAS)) $(ARGS) setup.cfg --output-file deploy/requirements.txt
	awk -F '"' '/^requires = / { for (i = 2; i <= NF; i += 2) print $$i }' pyproject.toml | \
	  $(LOCK) $(ARGS) - --output-file deploy/requirements-build.txt

# Files that contain the version.
VERSIONED := app/version.py README.md docs/deployment.md deploy/helm/Chart.yaml \
  $(wildcard deploy/kserve/*.yaml)

# A version that is valid in Python, in the chart and as an image tag: 1.2.3 or 1.2.3-rc.1.
NUMBER := (0|[1-9][0-9]*)
VALID_VERSION := $(NUMBER)([.]$(NUMBER)){2}(-(alpha|beta|rc)[.]?$(NUMBER))?
# In VERSIONED, a version follows __version__, version:, appVersion: or the name of an image.
BEFORE_VERSION := __version__ = \"|version: |appVersion: \"|.*[^ ]:

version:  ## set the version of the service, its chart and its manifests: make version VERSION=1.2.3
	@valid=$$(echo "$$VERSION" | grep -Ex '$(VALID_VERSION)'); \
	  if test -z "$$VERSION" || test "$$valid" != "$$VERSION"; then \
	    echo "Invalid version '$$VERSION'. Run: make version VERSION=1.2.3, or 1.2.3-rc.1"; \
	    exit 1; \
	  fi
	@old=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' app/version.py); \
	  pattern=$$(echo "$$old" | sed 's/[.+]/[&]/g'); \
	  sed -E -i.old "s/^($(BEFORE_VERSION))$$pattern(\"| |$$)/\1$$VERSION\2/" $(VERSIONED) && \
	  rm $(VERSIONED:=.old)

clean:  ## remove all files that the other targets create
	rm -rf .venv* .cache build *.egg-info grpc_service/*.binpb
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@problem=; \
	  if ! $(PYTHON) -c ''; then \
	    problem="Cannot run $(PYTHON)"; \
	  elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	    problem="$$($(PYTHON) --version) is too old"; \
	  fi; \
	  if test -n "$$problem"; then \
	    echo "$$problem. Select Python 3.11 or newer: make PYTHON=python3.12 ..."; \
	    exit 1; \
	  fi
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: $(SOURCES) | $(BIN)/python
	@echo "Installing the service into $(VENV). This takes about a minute."
	@$(INSTALL) --editable '.$(if $(wildcard app/cli/batch),[batch])'
	@touch $@

$(VENV)/.dev: $(VENV)/.serve $(TEST_REQUIREMENTS)
	@echo "Installing pytest, ruff and mypy into $(VENV)"
	@$(INSTALL) --editable '.[dev]' $(TEST_REQUIREMENTS:%=--requirement %)
	@touch $@

$(VENV)/.lock: | $(BIN)/python
	@$(INSTALL) uv
	@touch $@

-include dev/template.mk
