"""Check a Dockerfile without building it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .helm import missing


def lint_findings(dockerfile: Path) -> str:
    """Return hadolint's findings for the Dockerfile."""
    beside_python = str(Path(sys.executable).parent)
    hadolint = shutil.which("hadolint", path=os.pathsep.join([beside_python, os.environ["PATH"]]))
    if hadolint is None:
        missing("hadolint")
    return subprocess.run([hadolint, dockerfile], capture_output=True, text=True).stdout


def last_instruction(dockerfile: Path, name: str) -> str:
    """Return the arguments of the last instruction with this name, which decides about the image."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)[-1]
