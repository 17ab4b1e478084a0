# What only the template's own repository can do.
.PHONY: new fuzz chaos bench matrix audit project-values example-locks

new: $(VENV)/.dev  ## make a project of the template, beside this folder
	$(BIN)/cookiecutter . --output-dir ..

values: project-values

project-values:
	$(PYTHON) deploy/helm/values_table.py "{{cookiecutter.project_slug}}/deploy/helm"

VERSIONED += $(foreach each,README.md deploy/helm/Chart.yaml $(wildcard deploy/*/*.md deploy/kserve/*.yaml), \
  {{cookiecutter.project_slug}}/$(each))

lock: example-locks

example-locks: $(VENV)/.lock
	@for each in examples/*/requirements.txt; do \
	  $(LOCK) $(ARGS) setup.cfg $$each --output-file $$(dirname $$each)/lock.txt || exit; \
	done

$(VENV)/.dev: $(wildcard examples/*/requirements.txt)

LINTERS += 'mypy conformance chaos --follow-imports=silent'

fuzz: $(VENV)/.dev  ## send the service 200,000 generated requests
	$(BIN)/python -m conformance.fuzz $(ARGS)

chaos: $(VENV)/.dev  ## try the service with faults, and count what its clients lose
	$(BIN)/python -m chaos $(ARGS)

matrix: $(VENV)/.dev  ## try a project of each framework, under each Python at hand
	$(BIN)/python -m tests.template.matrix $(ARGS)

$(VENV)/.bench: benchmarks/requirements.txt | $(VENV)/.dev
	@$(INSTALL) --requirement $<
	@touch $@

bench: $(VENV)/.bench  ## measure the service beside MLServer, KServe and bare Flask and grpcio
	$(BIN)/python -m benchmarks $(ARGS)

$(VENV)-audit/.made:
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check bandit pip-audit
	@touch $@

audit: $(VENV)-audit/.made $(VENV)/.serve  ## look for known weaknesses in the code and in the packages under it
	@.ci/audit $(VENV)-audit/bin $(BIN)/python
