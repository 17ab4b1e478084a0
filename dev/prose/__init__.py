"""Wording to reconsider in the texts of this repository: make prose"""
