# Targets of the template's repository. Projects do not get this file.
.PHONY: new values conformance fuzz chaos bench matrix audit example-locks

PYTEST_OPTIONS = --numprocesses auto --dist loadfile --no-loadscope-reorder
# `make check` runs tests that do not start gunicorn or generate data. A project runs all of its tests.
FAST_TESTS = $(addprefix tests/service/,protocol codecs config inference rest grpc_service ui) \
  $(patsubst %,--ignore=tests/service/protocol/test_%.py,properties roundtrip roundtrip_frames roundtrip_errors) \
  $(patsubst %,tests/template/test_%.py,recipes dependencies code_limits line_limits) tests/style

new: $(VENV)/.dev  ## create a project next to this directory
	$(BIN)/cookiecutter . --output-dir ..

values:  ## write the table of the chart's values into its README
	$(PYTHON) tools/values_table.py deploy/helm "{{cookiecutter.project_slug}}/deploy/helm"

VERSIONED += $(foreach each,$(filter-out app/%,$(VERSIONED)),{{cookiecutter.project_slug}}/$(each))

lock: example-locks

example-locks: $(VENV)/.lock
	@for each in examples/*/requirements.txt; do \
	  $(LOCK) $(ARGS) setup.cfg $$each --output-file $$(dirname $$each)/lock.txt || exit; \
	done

$(VENV)/.dev: $(wildcard examples/*/requirements.txt)

LINTERS += 'ruff format --check' 'mypy conformance chaos benchmarks --follow-imports=silent'

conformance: $(VENV)/.dev  ## run the protocol's cases without each optimization; ARGS=raw_tensors selects one
	$(BIN)/python -m conformance.optimizations $(ARGS)

fuzz: $(VENV)/.dev  ## send 200,000 generated requests to the service
	$(BIN)/python -m conformance.fuzz $(ARGS)

chaos: $(VENV)/.dev  ## inject faults under load and count lost requests
	$(BIN)/python -m chaos $(ARGS)

matrix: $(VENV)/.dev  ## lint and test a project of each framework under each installed Python
	$(BIN)/python -m tests.template.matrix $(ARGS)

$(VENV)/.bench: benchmarks/requirements.txt | $(VENV)/.dev
	@$(INSTALL) --requirement $<
	@touch $@

bench: $(VENV)/.bench  ## compare the speed with MLServer, KServe, Triton, and Flask and grpcio without a model
	$(BIN)/python -m benchmarks $(ARGS)

$(VENV)-audit/.made:
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check bandit pip-audit
	@touch $@

audit: $(VENV)-audit/.made $(VENV)/.serve  ## find known vulnerabilities in the code and in its packages
	@.ci/audit $(VENV)-audit/bin $(BIN)/python
