"""Conformance tests for servers of the Open Inference Protocol v2: oip-conformance --help"""
