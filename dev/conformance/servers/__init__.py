"""The model of conformance/model.py in each server. See README.md for the commands."""
