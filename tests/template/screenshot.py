"""Take the picture of the model page in the README: python -m tests.template.screenshot"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.kit.processes import gunicorn

from .browser import start_chromium
from .helm import ROOT

PICTURE = ROOT / "docs" / "model-page.png"
WIDTH = 1100  # pixels


def take_picture(browser: Browser, address: str, file: Path) -> None:
    """Send the example of the page at `address`, and write a picture of the page with the response.

    The picture ends above the charts, which are still empty.
    """
    page = browser.new_page(viewport={"width": WIDTH, "height": 100}, color_scheme="light")
    page.goto(address)
    page.get_by_role("button", name="Predict").click()
    expect(page.locator("#outputs table").first).to_be_visible()
    charts = page.locator("#traffic")
    expect(charts).to_be_visible()
    height = charts.evaluate("each => each.getBoundingClientRect().top + scrollY")
    page.screenshot(
        path=file, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height}
    )
    page.close()


def main() -> None:
    """Start the service of this repository at its default ports, and take the picture."""
    with start_chromium() as browser, gunicorn(ROOT, HTTP_PORT=8080, GRPC_PORT=8081) as running:
        take_picture(browser, f"http://127.0.0.1:{running.http_port}/", PICTURE)


if __name__ == "__main__":
    main()
