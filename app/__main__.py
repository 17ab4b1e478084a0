"""Command line entry point: python -m app."""

from app.cli import main

main(prog_name="python -m app")
