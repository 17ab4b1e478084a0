"""Faults against the real service, and what becomes of its clients' requests: python -m chaos"""
