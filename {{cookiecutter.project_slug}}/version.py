"""Name and version of the service.

This module imports nothing, so that any module can import it.
"""

SERVICE_NAME = "{{ cookiecutter.project_slug }}"
__version__ = "0.1.0"
