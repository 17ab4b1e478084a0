"""The model of conformance/model.py in each server. README.md has the commands."""
