"""Hundreds of thousands of generated requests to the service as it runs for real; README.md has the command."""
