"""The model of the conformance suite in each server. See the README of dev/conformance for the commands."""
