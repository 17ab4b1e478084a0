"""Version of the service. This module imports nothing, so that any module can import it."""

__version__ = "0.1.0"
