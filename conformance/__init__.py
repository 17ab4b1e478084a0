"""Holds any live server of the Open Inference Protocol v2 against the rules of docs/protocol.md: python -m conformance"""
