"""The model page in a browser: outputs, layout and accessibility."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from app.inference.model_runner import ModelState
from app.protocol.metadata import MetadataTensor
from tests.kit import models

from .page import Open, Serve, check, predict


def test_outputs_are_displayed(visit: Open, all_kinds: str) -> None:
    """Outputs with the same number of rows share a table, with bars for probabilities, images and exact integers."""
    page = visit(all_kinds)
    predict(page)
    many, one = page.locator("#outputs table").all()
    assert many.locator("thead th").all_text_contents() == ["Row", "text back", "sums", "chances"]
    first = many.locator("tbody tr").first
    assert first.locator("td").nth(1).text_content() == "9007199254740993"
    assert first.get_by_role("listitem").all_inner_texts() == ["0\n25.0 %", "1\n75.0 %", "2\n0.0 %"]
    assert [image.get_attribute("alt") for image in one.locator("img").all()] == [
        "picture back, row 0"
    ]
    assert one.locator("canvas").count() == 1
    page.get_by_label("flag").uncheck()
    predict(page)
    assert page.locator(".bars").count() == 0


def test_probabilities_of_every_float_datatype(visit: Open, serve: Serve) -> None:
    """Probabilities have bars in each floating-point datatype."""
    outputs = [MetadataTensor(name, name, [-1, 2]) for name in ("FP16", "BF16", "FP32", "FP64")]
    module = models.model(
        [], outputs, lambda _: {tensor.name: [[0.25, 0.75]] for tensor in outputs}
    )
    page = visit(serve(module).address)
    predict(page)
    assert page.locator(".bars").count() == len(outputs)


def test_image_previews_keep_aspect_ratio(visit: Open, all_kinds: str) -> None:
    """Previews of images with different sizes keep their aspect ratio."""
    page = visit(all_kinds)
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="{height}"/>'
    files = [
        {
            "name": f"{height}.svg",
            "mimeType": "image/svg+xml",
            "buffer": svg.format(height=height).encode(),
        }
        for height in (40, 160)
    ]
    page.get_by_label("picture").set_input_files(files)
    low = page.get_by_alt_text("40.svg")
    expect(low).to_have_js_property("complete", True)
    box = low.bounding_box()
    assert box["width"] / box["height"] == pytest.approx(1.5, abs=0.05)


def test_page_waits_for_model(visit: Open, serve: Serve) -> None:
    """Until the model is ready, the button is disabled. The page detects by itself when it is ready."""
    app = serve(models.echo("FP32", [-1]))
    model = app.extensions["service"].model
    model._state = ModelState.LOADING
    page = visit(app.address)
    expect(page.locator("#state")).to_have_text("Loading")
    expect(page.get_by_role("button", name="Predict")).to_be_disabled()
    expect(page.get_by_text("You can send requests as soon as the model is ready.")).to_be_visible()
    model._state = ModelState.READY
    expect(page.locator("#state")).to_have_text("Ready")
    predict(page)
    expect(page.get_by_role("table").first).to_be_visible()


def test_wide_result_scrolls(visit: Open, columns: str) -> None:
    """On a narrow screen, a wide table scrolls in a box that the keyboard reaches, and values do not wrap."""
    page = visit(columns, viewport={"width": 390, "height": 800})
    page.get_by_label("Several rows").check()
    date, text = (
        "2024-01-31T12:00:00.123456+00:00",
        "a text of well-known words that is longer than a line",
    )
    page.get_by_label("CSV").fill(
        f"number,word,is it\n-1.234567890123456e-305,{date},true\n1,{text},false"
    )
    predict(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    number, when, _, _, words, _ = (lines(cell) for cell in page.locator("#outputs td").all())
    assert (number, when) == (1, 1)
    assert words > 1
    assert lines(page.locator("#outputs td span").get_by_text("well-known")) == 1
    box = page.get_by_role("group", name="Rows")
    box.evaluate(
        "each => each.addEventListener('scroll', () => { each.dataset.left = each.scrollLeft; })"
    )
    box.focus()
    page.keyboard.press("ArrowRight")
    expect(box).to_have_attribute("data-left", re.compile("[1-9]"))
    check(page)


def lines(text: Locator) -> int:
    """Return the number of lines that a text takes."""
    return text.evaluate(
        """each => {
            const tops = new Set(), range = document.createRange();
            const walker = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                range.selectNodeContents(walker.currentNode);
                for (const box of range.getClientRects()) tops.add(Math.round(box.top));
            }
            return tops.size;
        }"""
    )


def test_accessibility(visit: Open, all_kinds: str, columns: str) -> None:
    """axe reports no violations in light and dark mode, on narrow and wide screens, with a result and with an error."""
    for address, width in ((all_kinds, 320), (columns, 1280)):
        page = visit(address, viewport={"width": width, "height": 800})
        predict(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for scheme, color in (("light", "rgb(246, 246, 244)"), ("dark", "rgb(15, 17, 21)")):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == color
            check(page)
    page.get_by_label("number").fill("many")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_role("alert")).to_have_text('number: "many" is not a number.')
    check(page)


def test_charts_show_rate_and_latency(visit: Open, all_kinds: str) -> None:
    """The charts show the requests per second and the median latency since the last update of the page."""
    page = visit(all_kinds)
    expect(page.locator("#traffic")).to_be_visible()
    predict(page)
    expect(page.locator("#latency")).to_have_text(re.compile(r"\d (ms|s)$"), timeout=10000)
    assert float(page.locator("#rate").inner_text()) > 0
    expect(page.get_by_role("img", name="requests per second")).to_be_visible()
