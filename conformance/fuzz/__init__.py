"""Fuzz the running service with several hundred thousand generated requests. README.md describes the command."""
