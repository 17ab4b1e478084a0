"""Services whose predict.py has the optional functions is_healthy() or unload()."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from flask import Flask

from tests.service.apps import wait_for, waiting


def unloading() -> Flask:
    """Return the `waiting` service with an unload(), which adds the PID to FOLDER/unloads and raises an exception.

    If FOLDER/slow exists, load() waits for FOLDER/loaded.
    """
    place = Path(os.environ["FOLDER"])

    def load() -> None:
        (place / "load.begun").touch()
        if (place / "slow").exists():
            wait_for(place / "loaded")

    def unload(_: Any) -> None:
        with (place / "unloads").open("a") as file:
            file.write(f"{os.getpid()}\n")
        raise RuntimeError("unload() has failed")

    return waiting(load, unload=unload)


def checked() -> Flask:
    """Return the `waiting` service with an is_healthy(), which adds a line to FOLDER/checks.

    If FOLDER/problem exists, is_healthy() raises an exception with its text, or returns False if it is empty.
    """
    place = Path(os.environ["FOLDER"])

    def is_healthy(_: Any) -> bool:
        with (place / "checks").open("a") as file:
            file.write("\n")
        text = (place / "problem").read_text() if (place / "problem").exists() else None
        if text:
            raise RuntimeError(text)
        return text is None

    return waiting(is_healthy=is_healthy)
