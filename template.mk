# What only the template's own repository can do.
.PHONY: new types

new: $(VENV)/.dev  ## make a project of the template, beside this folder
	$(BIN)/cookiecutter . --output-dir ..

lint: types

types: $(VENV)/.dev
	$(BIN)/mypy conformance --follow-imports=silent
