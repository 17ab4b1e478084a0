"""Chaos tests, which inject faults into a running service and count failed requests of clients: python -m dev.chaos"""
