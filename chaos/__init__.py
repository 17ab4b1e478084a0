"""Inject faults into the running service and count the effects on clients' requests: python -m chaos"""
