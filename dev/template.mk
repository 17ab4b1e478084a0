# Targets of the template's repository. Projects do not get this file.
.PHONY: docs clean-template new values prose slow optimizations fuzz chaos abuse bench matrix audit
.PHONY: example-locks

# The tests start hundreds of processes that import the same packages.
unexport PYTHONDONTWRITEBYTECODE

PYTEST_OPTIONS = --numprocesses auto --dist loadfile --no-loadscope-reorder
# Most tests wait for processes more than they compute. Those of `make check` compute.
CORES = $(shell getconf _NPROCESSORS_ONLN)
test slow: export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr $(CORES) \* 3)
check: export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr $(CORES) \* 3 / 2)
# `make check` runs tests that do not start gunicorn or generate data. A project runs all of its
# tests.
FAST_PACKAGES = conformance protocol codecs config inference rest grpc_service ui
GENERATED_DATA_TESTS = properties roundtrip roundtrip_frames
FAST_TESTS = $(FAST_PACKAGES:%=tests/service/%) \
  $(GENERATED_DATA_TESTS:%=--ignore=tests/service/protocol/test_%.py) \
  tests/template/test_dependencies.py

$(VENV)/.docs: setup.cfg | $(VENV)/.serve
	@echo "Installing Sphinx into $(VENV)"
	@$(INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.docs $(VENV)/.conformance

CONFORMANCE_SOURCES = conformance/setup.py conformance/pyproject.toml $(wildcard protos/*.proto)

$(VENV)/.conformance: $(CONFORMANCE_SOURCES) | $(VENV)/.serve
	@$(INSTALL) --editable ./conformance
	@touch $@

# A fresh environment shows all warnings again, and reads the code again. A test reads the options
# from this line.
docs: $(VENV)/.docs  ## build the documentation site in docs/_build
	$(BIN)/python -m sphinx --quiet --fresh-env --nitpicky --fail-on-warning --keep-going --conf-dir docs . docs/_build $(ARGS)
	@echo "Open docs/_build/index.html"

clean: clean-template

clean-template:
	rm -rf docs/_build conformance/build conformance/*.egg-info conformance/oip_conformance/*.binpb

new: $(VENV)/.dev  ## create a project next to this directory
	$(BIN)/cookiecutter $(CURDIR) --output-dir ..

values:  ## write the table of the chart's values into its README
	$(PYTHON) dev/tools/values_table.py deploy/helm "{{cookiecutter.project_slug}}/deploy/helm"

prose: $(VENV)/.dev  ## list wording to reconsider; ARGS=FILE selects files
	@$(BIN)/python -m dev.prose $(ARGS)

VERSIONED += $(foreach file,$(VERSIONED:app/%=%),{{cookiecutter.project_slug}}/$(file)) CITATION.cff

lock: example-locks

example-locks: $(VENV)/.lock
	@for requirements in examples/*/requirements.txt; do \
	  lock=$$(dirname $$requirements)/lock.txt; \
	  $(LOCK) $(ARGS) setup.cfg $$requirements --output-file $$lock || exit; \
	done

$(VENV)/.dev: $(wildcard examples/*/requirements.txt)

LINTERS += 'ruff format --check' 'mypy conformance dev --follow-imports=silent'

slow: $(VENV)/.dev  ## run the tests that `make test` leaves out, because they take minutes
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) -m slow $(ARGS)

# The suite of this repository, instead of that of a template.
conformance: export CONFORMANCE ?= ./conformance

optimizations: $(VENV)/.dev  ## run the conformance suite without each optimization; ARGS=raw_tensors selects one
	$(BIN)/python -m tests.optimizations $(ARGS)

fuzz: $(VENV)/.dev  ## send 200,000 generated requests to the service
	$(BIN)/python -m tests.fuzz $(ARGS)

chaos: $(VENV)/.dev  ## inject faults under load and count lost requests
	$(BIN)/python -m dev.chaos $(ARGS)

abuse: $(VENV)/.dev  ## attack the service, and check its memory and the delays of other clients
	$(BIN)/python -m dev.chaos.abuse $(ARGS)

matrix: $(VENV)/.dev  ## lint and test a project of each framework under each installed Python
	$(BIN)/python -m tests.template.matrix $(ARGS)

$(VENV)/.bench: dev/benchmarks/requirements.txt | $(VENV)/.dev
	@$(INSTALL) --requirement $<
	@touch $@

bench: $(VENV)/.bench  ## compare the speed with MLServer, KServe, Triton, BentoML, and Flask and grpcio without a model
	$(BIN)/python -m dev.benchmarks $(ARGS)

$(VENV)-audit/.made: | $(VENV)/.lock
	@$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(@D)
	@$(BIN)/uv pip install --quiet --python $(@D) bandit pip-audit
	@touch $@

audit: $(VENV)-audit/.made $(VENV)/.serve  ## find known vulnerabilities in the code and in its packages
	@.ci/audit $(VENV)-audit/bin $(BIN)/python
