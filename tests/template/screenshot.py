"""Take the picture of the model page in the README: python -m tests.template.screenshot"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.service.processes import gunicorn

from .browser import start_chromium
from .helm import ROOT

PICTURE = ROOT / "docs" / "model-page.png"
WIDTH = 1100  # pixels


def take_picture(browser: Browser, address: str, file: Path) -> None:
    """Send the example of the page at `address`, and write a picture of the whole page with the response."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 100}, color_scheme="light")
    page.goto(address)
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#outputs table")).to_be_visible()
    expect(page.locator("#traffic")).to_be_visible()
    page.screenshot(path=file, full_page=True)
    page.close()


def main() -> None:
    """Start the service of this repository at its default ports, and take the picture."""
    with start_chromium() as browser, gunicorn(ROOT, HTTP_PORT=8080, GRPC_PORT=8081) as running:
        take_picture(browser, f"http://127.0.0.1:{running.http_port}/", PICTURE)


if __name__ == "__main__":
    main()
