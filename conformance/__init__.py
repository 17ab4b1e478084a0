"""Test a live server of the Open Inference Protocol v2 against docs/protocol.md: python -m conformance --help"""
