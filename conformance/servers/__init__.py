"""How each server serves the model of conformance/model.py; README.md has the commands."""
