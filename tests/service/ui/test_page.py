"""The model page: HTML, files and access. tests/template/test_page_*.py test it in a browser."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.inference.model_runner import ModelState
from app.protocol.metadata import MetadataTensor
from app.ui.fields import create_fields, to_csv
from oip_conformance.wires import error_message
from tests.kit import models

PAGE = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
KEY = "first-key-0123456789"
BASIC = {"Authorization": f"Basic {b64encode(f'anyone:{KEY}'.encode()).decode()}"}
SCRIPT_TEXT = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def iris(serve) -> Any:
    inputs = [MetadataTensor("features", "FP32", [-1, 4])]
    outputs = [MetadataTensor("label", "BYTES", [-1], content_type="str")]
    return serve(models.model(inputs, outputs, lambda _, features: ["setosa"] * len(features)))


@pytest.fixture(scope="module")
def service_with_key(serve, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a service that requires an API key."""
    file = tmp_path_factory.mktemp("keys") / "keys.txt"
    file.write_text(KEY)
    return serve(models.echo("FP32", [-1]), api_keys_file=file)


def same(_: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return inputs


def show(service: Any, headers: dict[str, str] | None = None) -> str:
    response = service.client.get("/", headers={**PAGE, **(headers or {})})
    assert (response.status_code, response.mimetype) == (200, "text/html")
    return response.text


def script(page: str) -> dict[str, Any]:
    """Return the data that the page has for its scripts."""
    return json.loads(
        re.search(r'<script id="model" type="application/json">(.*?)</script>', page)[1]
    )


def test_page_shows_model(iris) -> None:
    """The page shows the model's name, version, platform, state, inputs and outputs, and a field for each input."""
    page = show(iris)
    metadata = iris.core.info.metadata
    for text in (
        metadata.name,
        metadata.version,
        metadata.platform,
        "features",
        "FP32",
        "[-1, 4]",
        "label",
        "BYTES",
    ):
        assert f">{text}<" in page
    assert 'data-state="Ready" role="status">Ready<' in page
    assert re.search(
        r'<label for="input-0">features</label>.*<textarea id="input-0"[^>]* required',
        page,
        re.DOTALL,
    )


def test_content_security_policy(iris) -> None:
    """The Content-Security-Policy allows only resources of the service, and the page has no inline code."""
    response = iris.client.get("/", headers=PAGE)
    policy = dict(
        directive.split(" ", 1)
        for directive in response.headers["Content-Security-Policy"].split("; ")
    )
    assert (
        policy.pop("default-src")
        == policy.pop("frame-ancestors")
        == policy.pop("base-uri")
        == "'none'"
    )
    assert policy.pop("img-src") == "'self' data: blob:"
    assert policy.pop("require-trusted-types-for") == "'script'"
    assert policy == dict.fromkeys(
        ["script-src", "style-src", "connect-src", "form-action"], "'self'"
    )
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert re.findall(r'<script (?!id="model" type="application/json")([^>]*)>', response.text) == [
        'type="module" src="static/page.js"'
    ]
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?://(?!localhost[/&])", response.text)


def test_files_of_page(iris) -> None:
    """All files of the page exist, have the same policy, and are sent again only if they have changed."""
    names, seen = re.findall(r'(?:src|href)="static/([^"]+)"', show(iris)), set()
    while names:
        name = names.pop()
        seen.add(name)
        response = iris.client.get(f"/static/{name}", buffered=True)
        assert response.status_code == 200
        assert response.mimetype in {"text/css", "text/javascript", "image/svg+xml"}
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        again = iris.client.get(
            f"/static/{name}", headers={"If-None-Match": response.headers["ETag"]}, buffered=True
        )
        assert again.status_code == 304
        names += set(re.findall(r'from "\./([^"]+)"', response.text)) - seen
    assert len(seen) > 4
    for path in ("/static/none.js", "/static/../page.py", "/static/%2e%2e/page.py"):
        error_message(iris.client.get(path), 404)


@pytest.mark.parametrize("accept", ["text/html", "*/*", None])
def test_page_for_browsers(iris, accept: str | None) -> None:
    """GET / returns the page to clients that accept HTML or any type."""
    headers = {"Accept": accept} if accept else {}
    response = iris.client.get("/", headers=headers)
    assert (response.status_code, response.mimetype, response.headers["Vary"]) == (
        200,
        "text/html",
        "Accept",
    )
    head = iris.client.head("/", headers=headers)
    assert (head.status_code, head.data, head.content_length) == (200, b"", response.content_length)


def test_page_for_json_clients(iris) -> None:
    """GET / returns 404 with the paths of the protocol to clients that accept only JSON."""
    assert "/v2/models/NAME/infer" in error_message(
        iris.client.get("/", headers={"Accept": "application/json"}), 404
    )


def test_ui_off(serve) -> None:
    """UI_ENABLED=off removes the page and its files."""
    service = serve(models.echo("FP32", [-1]), ui_enabled=False)
    for path in ("/", "/static/page.css"):
        error_message(service.client.get(path, headers=PAGE), 404)


def test_markup_in_metadata_is_escaped(serve) -> None:
    """HTML in METADATA is escaped on the page and in the data for its scripts."""
    tensors = [
        MetadataTensor(SCRIPT_TEXT, "FP32", [-1]),
        MetadataTensor("b", "BYTES", [-1], content_type="base64"),
    ]
    module = models.model(tensors, tensors, same)
    module.METADATA = replace(
        module.METADATA, name=SCRIPT_TEXT.replace("/", "|"), version="<b>", platform=SCRIPT_TEXT
    )
    service = serve(module)
    page = show(service, {"Host": '"><script>alert(3)</script>'})
    assert page.count("<script") == 2
    assert "<img" not in page
    assert html.escape(SCRIPT_TEXT, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page
    assert script(page)["inputs"][0]["name"] == SCRIPT_TEXT


def test_page_before_model_is_ready(serve) -> None:
    """While the model loads, the page shows its state, and the form is disabled."""
    service = serve(models.echo("FP32", [-1]))
    with service.model_state(ModelState.LOADING):
        page = show(service)
    assert 'data-state="Loading" role="status">Loading<' in page
    assert '<fieldset id="enabled" disabled>' in page


@pytest.mark.parametrize(
    ("tensor", "values", "kind", "text"),
    [
        (MetadataTensor("x", "FP32", [-1, 2]), [[1.5, 2], [None, 4]], "grid", "1.5, 2\n, 4"),
        (MetadataTensor("x", "INT64", [-1]), [2**53 + 1, 2], "grid", "9007199254740993, 2"),
        (MetadataTensor("x", "INT64", [-1, -1]), [[1, 2], [3, 4]], "grid", "1, 2\n3, 4"),
        (MetadataTensor("x", "INT64", [-1, -1, 1]), [[[1], [2]]], "grid", "[[[1],[2]]]"),
        (MetadataTensor("x", "FP32", [1, 2, 2]), [[[1, 2], [3, 4]]], "grid", "1, 2\n3, 4"),
        (MetadataTensor("x", "FP32", [-1, 1]), [[1], [None]], "grid", "[[1],[null]]"),
        (MetadataTensor("x", "FP32", [-1, 0]), [], "grid", ""),
        (MetadataTensor("x", "FP64", [1]), [0.25], "number", "0.25"),
        (MetadataTensor("x", "UINT8", []), 7, "number", "7"),
        (MetadataTensor("x", "BOOL", [1, 1]), [[True]], "switch", "true"),
        (MetadataTensor("x", "BYTES", [1]), ["a\nb"], "text", "a\nb"),
        (MetadataTensor("x", "BYTES", [-1], "str"), ["a", "b"], "lines", "a\nb"),
        (MetadataTensor("x", "BYTES", [-1], "str"), ["a\nb", None], "lines", '["a\\nb",null]'),
        (MetadataTensor("x", "BYTES", [-1], "str"), ["[1]"], "lines", '["[1]"]'),
        (MetadataTensor("x", "BYTES", [-1], "str"), [" ", "[1]"], "lines", '[" ","[1]"]'),
        (
            MetadataTensor("x", "BYTES", [-1, 2]),
            [["a, b", None], ["[c", ""]],
            "grid",
            '"a, b", \n"[c", ""',
        ),
        (MetadataTensor("x", "BYTES", [-1], "base64"), ["dGV4dA=="], "file", "dGV4dA=="),
        (MetadataTensor("x", "BYTES", [-1], "bytes"), ["dGV4dA=="], "file", "dGV4dA=="),
        (MetadataTensor("x", "BYTES", [1], "image/png"), [], "file", ""),
    ],
    ids=str,
)
def test_fields(tensor: MetadataTensor, values: Any, kind: str, text: str) -> None:
    """A field has the kind for the datatype, shape and content type of the input, and the example as its value."""
    example = {"shape": list(np.shape(values)), "data": np.array(values, object).ravel().tolist()}
    (field,) = create_fields([tensor], {"x": example})
    assert (field.kind, field.value) == (kind, text)


def test_table_as_csv() -> None:
    """A table has a field for each column, and its CSV distinguishes missing from empty text."""
    columns = [
        MetadataTensor("a, b", "FP64", [-1]),
        MetadataTensor("text", "BYTES", [-1, 1], "str"),
    ]
    values = {"a, b": [1.5, None, 3], "text": ['"x"', "", None]}
    assert [field.kind for field in create_fields(columns, {})] == ["number", "text"]
    assert to_csv(columns, values) == '"a, b",text\n1.5,"""x"""\n,""\n3,'


def test_omits_long_example(serve) -> None:
    """The page does not contain the example of an input with very many numbers."""
    page = show(serve(models.echo("FP32", [1, 3, 224, 224])))
    assert len(page) < 20000
    assert script(page)["inputs"][0]["example"] == []


def test_browser_gets_basic_challenge(service_with_key) -> None:
    """Without an API key, a browser gets a Basic challenge, for the files of the page too, and other clients do not."""
    for path in ("/", "/static/page.css", "/v2/models/test"):
        response = service_with_key.client.get(path, headers=PAGE)
        assert "API key" in error_message(response, 401)
        assert response.headers.getlist("WWW-Authenticate") == [
            'Basic realm="model", charset="UTF-8"',
            "Bearer",
        ]
        assert service_with_key.client.get(path).headers.getlist("WWW-Authenticate") == ["Bearer"]
        assert (
            service_with_key.client.get(path, headers={**PAGE, **BASIC}, buffered=True).status_code
            == 200
        )
    assert KEY not in show(service_with_key, BASIC)


@pytest.mark.parametrize(
    ("headers", "is_accepted"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": "https://model.test", "Host": "model.test"}, True),
        ({"Origin": "https://model.test.elsewhere", "Host": "model.test"}, False),
        ({"Origin": "null", "Host": "model.test"}, False),
        ({}, True),
    ],
    ids=str,
)
def test_cross_site_requests_cannot_use_stored_key(
    service_with_key, headers: dict[str, str], is_accepted: bool
) -> None:
    """A page of another site cannot use a key that the browser stores, but a key in `X-Api-Key` is always accepted."""
    body = '{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}'
    path = "/v2/models/test/infer"
    status = service_with_key.client.post(path, data=body, headers={**headers, **BASIC}).status_code
    assert status == (200 if is_accepted else 401)
    assert (
        service_with_key.client.post(
            path, data=body, headers={**headers, "X-Api-Key": KEY}
        ).status_code
        == 200
    )
    assert service_with_key.client.get("/", headers={**PAGE, **headers, **BASIC}).status_code == 200
