# `make serve` and `make test` set up all they need; PYTHON chooses the interpreter, 3.10 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXTRAS ?= $(shell sed -n 's/^\# *make lock EXTRAS="\(.*\)"$$/\1/p' deploy/requirements.txt)
LOCK = UV_CUSTOM_COMPILE_COMMAND='make lock$(if $(EXTRAS), EXTRAS="$(EXTRAS)")' $(BIN)/uv pip compile --quiet \
  --universal --python-version $(shell sed -n 's/^python_requires = >=//p' setup.cfg) --generate-hashes --no-annotate
LINTERS = 'ruff check' 'ruff format --check' mypy
# Runs all, and fails in the end if one did.
each = failed=; for tool in $(1); do echo "$(BIN)/$$tool"; $(BIN)/$$tool || failed=1; done; test -z "$$failed"
SOURCES := setup.cfg setup.py pyproject.toml $(wildcard protos/*.proto)
TEST_REQUIREMENTS := $(wildcard tests/*/requirements.txt)

.PHONY: serve test lint format lock values version clean help

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

serve: $(VENV)/.serve  ## run the service, REST and gRPC
	$(BIN)/gunicorn 'app:create_app()'

test: $(VENV)/.dev  ## run the tests
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.dev  ## check style and types
	@$(call each,$(LINTERS))

format: $(VENV)/.dev  ## put the style right
	@$(BIN)/ruff format --quiet  # what it can put right is no fault
	@$(call each,'ruff check --fix' 'ruff format')

# EXTRAS are those of the lock that is there, unless given. ARGS=--upgrade for newer versions than those that are there.
lock: $(VENV)/.lock  ## write deploy/requirements*.txt, what the image installs; EXTRAS=tracing for that too
	$(LOCK) $(patsubst %,--extra=%,$(EXTRAS)) $(ARGS) setup.cfg --output-file deploy/requirements.txt
	awk -F '"' '/^requires = / { for (i = 2; i <= NF; i += 2) print $$i }' pyproject.toml | \
	  $(LOCK) $(ARGS) - --output-file deploy/requirements-build.txt

values:  ## write the chart's table of values into its README
	$(PYTHON) deploy/helm/values_table.py

VERSIONED := app/__init__.py README.md deploy/helm/Chart.yaml $(wildcard deploy/*/*.md deploy/kserve/*.yaml)

# What Python, the chart and an image's tag all take.
A_VERSION := (0|[1-9][0-9]*)([.](0|[1-9][0-9]*)){2}(-(alpha|beta|rc)[.]?(0|[1-9][0-9]*))?

version:  ## make version VERSION=1.2.3: of the service, its chart and its manifests
	@test "$$VERSION" && test "$$(echo "$$VERSION" | grep -Ex '$(A_VERSION)')" = "$$VERSION" || \
	  { echo "VERSION='$$VERSION' will not do: make version VERSION=1.2.3, or 1.2.3-rc.1"; exit 1; }
	@old=$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' app/__init__.py | sed 's/[.+]/[&]/g'); \
	  sed -E -i.old "s/^(__version__ = \"|version: |appVersion: \"|.*[^ ]:)$$old(\"| |$$)/\1$$VERSION\2/" $(VERSIONED) && \
	  rm $(VERSIONED:=.old)

clean:  ## remove what the other targets made
	rm -rf .venv* .cache build *.egg-info grpc_service/*.binpb .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@fault=; $(PYTHON) -c '' || fault="$(PYTHON) does not run here"; \
	  test "$$fault" || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  fault="$$($(PYTHON) --version) is too old"; test -z "$$fault" || { \
	  echo "$$fault; name a Python of 3.10 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: $(SOURCES) | $(BIN)/python
	@echo "Installing the service into $(VENV), which takes a minute or so"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.serve $(TEST_REQUIREMENTS)
	@echo "Installing what tests and linters need into $(VENV)"
	@$(INSTALL) --editable '.[dev]' $(TEST_REQUIREMENTS:%=--requirement %)
	@touch $@

$(VENV)/.lock: | $(BIN)/python
	@$(INSTALL) uv
	@touch $@

-include template.mk
