"""Conformance tests for servers of the Open Inference Protocol v2 (docs/protocol.md): python -m conformance --help"""
