"""The option --version: what a bug report needs, without the values of settings."""

import json
import os
import platform
from dataclasses import fields

from app.cli.common import show_table
from app.config.packages import installed_versions
from app.config.settings import ROOT, Settings
from app.version import SERVICE_NAME, __version__


def show_versions() -> None:
    """Print versions of the service, its template, Python and packages, and names of settings."""
    rows = [(SERVICE_NAME, __version__)]
    commit = _template_commit()
    if commit:
        rows.append(("template", commit))
    rows.append(("Python", platform.python_version()))
    rows.append(("system", platform.platform()))
    rows += installed_versions().items()
    rows.append(("settings", ", ".join(_environment_variables()) or "all defaults"))
    show_table(rows)


def _template_commit() -> str | None:
    """Return the commit of the template that the project was generated from, if it is known."""
    try:
        record = json.loads((ROOT / ".cruft.json").read_bytes())
    except FileNotFoundError:
        return None
    return str(record["commit"])


def _environment_variables() -> list[str]:
    """Return the names of the settings in the environment, even if a value is invalid."""
    variables = []
    for setting in fields(Settings):
        variable = setting.name.upper()
        if os.environ.get(variable, "").strip():
            variables.append(variable)
    return variables
