"""Comparison of this service with other servers by the conformance suite."""
