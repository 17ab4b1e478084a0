"""python -m app: the command line."""

from app.cli import main

main(prog_name="python -m app")
