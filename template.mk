# What only the template's own repository can do.
.PHONY: new types fuzz bench

new: $(VENV)/.dev  ## make a project of the template, beside this folder
	$(BIN)/cookiecutter . --output-dir ..

lint: types

types: $(VENV)/.dev
	$(BIN)/mypy conformance --follow-imports=silent

fuzz: $(VENV)/.dev  ## send the service 200,000 generated requests
	$(BIN)/python -m conformance.fuzz $(ARGS)

$(VENV)/.bench: benchmarks/requirements.txt | $(VENV)/.dev
	@$(INSTALL) --requirement $<
	@touch $@

bench: $(VENV)/.bench  ## measure the service beside MLServer, KServe and bare Flask and grpcio
	$(BIN)/python -m benchmarks $(ARGS)
