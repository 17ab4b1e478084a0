"""Import of the owner's files: app/predict.py and app/custom.py."""

from importlib import import_module
from typing import Any

from app.inference.startup_errors import describe_error
from app.protocol.errors import ConfigurationError


def import_owner_file(name: str) -> Any:
    """Import and return app/predict.py or app/custom.py.

    Raise ConfigurationError with the reason if this fails.
    """
    try:
        import_module("app.custom")  # before predict.py, because it can register codecs
        return import_module(f"app.{name}")  # by name, because these files import this package
    except ConfigurationError as error:
        raise ConfigurationError(describe_error(error)) from None
    except BaseException as error:  # includes SystemExit
        raise ConfigurationError(describe_error(error)) from error
