"""The model's page in a browser: form, requests, results and accessibility."""

from __future__ import annotations

import ast
import base64
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import trustme
from axe_playwright_python.sync_playwright import Axe
from google.protobuf.json_format import Parse
from playwright.sync_api import Browser, Locator, Page, expect
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server

from app import create_app
from app.config.settings import Settings
from app.protocol.types import MetadataTensor
from grpc_service.messages import ModelInferRequest
from tests.service import models
from tests.service.processes import Running, gunicorn

from .helm import ROOT

KEY = "first-key-0123456789"
# A path prefix that a proxy may add.
PREFIX = "team/model"
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")
# Text that a shell would change if it was not quoted.
TEXTS = ['it\'s $HOME `id` \\ "quoted" !x', "two\nlines", "ü 🌷", ""]
Open = Callable[..., Page]
Serve = Callable[[Any], Any]
# The browser's own console message for an error response.
REFUSED = "Failed to load resource"


def everything() -> Any:
    """Return a model with every kind of field except a table, and every kind of output."""
    inputs = [
        MetadataTensor("text", "BYTES", [-1], "str"),
        MetadataTensor("matrix", "INT64", [-1, 2]),
        MetadataTensor("one", "FP32", [1]),
        MetadataTensor("flag", "BOOL", [1]),
        MetadataTensor("picture", "BYTES", [-1], "base64"),
    ]
    outputs = [
        MetadataTensor("text back", "BYTES", [-1], "str"),
        MetadataTensor("sums", "INT64", [-1]),
        MetadataTensor("chances", "FP32", [-1, 3]),
        MetadataTensor("picture back", "BYTES", [-1], "base64"),
        MetadataTensor("pixels", "UINT8", [-1, 8, 8, 3]),
    ]

    def predict(
        _: Any,
        text: list[str],
        matrix: np.ndarray,
        one: np.ndarray,
        flag: np.ndarray,
        picture: list[bytes] = [],  # noqa: B006
    ) -> dict[str, Any]:
        chances = np.tile([0.25, 0.75, 0], (len(text), 1)) if flag[0] else np.ones((len(text), 3)) * one
        pixels = np.full((len(picture), 8, 8, 3), 255, np.uint8)
        values = {"text back": text, "sums": matrix.sum(axis=1), "chances": chances}
        return {**values, "picture back": picture, "pixels": pixels}

    module = models.model(inputs, outputs, predict)
    module.EXAMPLE = {
        "text": ["it's $HOME", '"quoted"'],
        "matrix": [[2**53 + 1, 0], [3, 4]],
        "one": [0.5],
        "flag": [True],
        "picture": [base64.b64encode(PNG).decode()],
    }
    return module


def grids() -> Any:
    """Return a model that echoes numbers and texts of several dimensions."""
    tensors = [
        MetadataTensor("cube", "FP64", [-1, 2, 3]),
        MetadataTensor("words", "BYTES", [-1, -1], "str"),
        MetadataTensor("open", "INT64", [-1, -1, 2]),
    ]

    def back(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    module = models.model(tensors, tensors, back)
    words = [["a, b", 'c "d"'], ["[e", ""]]
    module.EXAMPLE = {"cube": np.ones((1, 2, 3)), "words": words, "open": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]}
    return module


def table() -> Any:
    """Return a model with one column of each kind that returns the columns, with numbers doubled."""
    columns = [
        MetadataTensor("number", "FP64", [-1]),
        MetadataTensor("word", "BYTES", [-1], "str"),
        MetadataTensor("is it", "BOOL", [-1]),
    ]

    def predict(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        return {**inputs, "number": inputs["number"] * 2}

    module = models.model(columns, columns, predict)
    module.EXAMPLE = {"number": [1.5], "word": ["one"], "is it": [True]}
    return module


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Return serve(module), which serves its application in this process, at `address` and under PREFIX."""
    servers = []

    def start(module: Any) -> Any:
        app = create_app(Settings(), module)
        server = make_server("127.0.0.1", 0, DispatcherMiddleware(app, {f"/{PREFIX}": app}), threaded=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        app.address = f"http://127.0.0.1:{server.server_port}/"
        return app

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def all_kinds(serve: Serve) -> str:
    return serve(everything()).address


@pytest.fixture(scope="module")
def columns(serve: Serve) -> str:
    return serve(table()).address


@pytest.fixture(scope="module")
def rows(serve: Serve) -> str:
    return serve(grids()).address


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Return visit(address, ...), which opens the page in a new context, without errors or third-party requests."""
    faults: list[str] = []
    contexts = []

    def go(address: str, **options: Any) -> Page:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20000)
        page.on("request", lambda each: None if each.url.startswith((address, "data:", "blob:")) else told(each.url))
        page.on("console", lambda each: told(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda each: told(str(each)))
        page.goto(address)
        return page

    def told(text: str) -> None:
        if not text.startswith(REFUSED):
            faults.append(text)

    yield go
    for context in contexts:
        context.close()
    assert not faults


def predict(page: Page) -> dict[str, Any]:
    """Send the form and return the request that it made."""
    with page.expect_response("**/infer") as answer:
        page.get_by_role("button", name="Predict").click()
    expect(page.locator("#send")).to_have_attribute("aria-disabled", "false")
    return json.loads(answer.value.request.post_data)


def shown(page: Page) -> dict[str, str]:
    """Return the calls that the page shows."""
    return {tool: page.locator(f'[data-tool="{tool}"] code').text_content() for tool in ("curl", "python", "grpcurl")}


def test_keyboard_and_api_key(visit: Open, chromium: Browser, tmp_path: Path) -> None:
    """With an API key and only the keyboard, a user can send the form and read a result and an error."""
    file = tmp_path / "keys.txt"
    file.write_text(KEY)
    with gunicorn(ROOT, API_KEYS_FILE=file) as running:
        address = f"http://{running.http}/"
        stranger = chromium.new_context()
        assert stranger.request.get(address, headers={"Accept": "text/html"}).status == 401
        stranger.close()
        page = visit(address, http_credentials={"username": "anyone", "password": KEY})
        expect(page.get_by_role("heading", level=1)).to_have_text("iris")
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the form")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_label("features")).to_be_focused()
        page.keyboard.press("Control+A")
        page.keyboard.type("6.7, 3.0, 5.2, 2.3")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        answer = page.get_by_role("region", name="Response")
        expect(answer.get_by_role("row", name="label virginica")).to_be_visible()
        expect(answer.get_by_role("listitem")).to_have_text([re.compile("^0"), re.compile("^1"), re.compile("^2.* %")])
        expect(answer.get_by_role("status")).to_contain_text("Round trip")
        expect(page.get_by_role("img", name=re.compile("requests per second"))).to_be_visible()

        page.get_by_label("features").fill("5.1 3.5 1.4 0.2\n6 2.9 4.5 1.5\n6.7 3 5.2 2.3")
        page.keyboard.press("Control+Enter")
        expect(answer.get_by_role("row", name="1 versicolor")).to_be_visible()
        assert [each[0] for each in answer.get_by_role("listitem").all_inner_texts()] == list("012" * 3)
        page.set_viewport_size({"width": 390, "height": 800})
        assert answer.get_by_role("group", name="Rows").evaluate("each => each.scrollWidth - each.clientWidth") == 0

        page.get_by_label("features").fill("6.7, 3.0")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_have_text(re.compile(r'input "features": .*\(400\)'))
        expect(answer.get_by_role("table")).to_have_count(0)


def test_form_starts_with_example(visit: Open, all_kinds: str) -> None:
    """The form starts with EXAMPLE, without loss of digits."""
    sent = {each["name"]: each["data"] for each in predict(visit(all_kinds))["inputs"]}
    assert sent == {**everything().EXAMPLE, "matrix": [2**53 + 1, 0, 3, 4]}


def arguments(command: str) -> list[str]:
    """Return the arguments that a shell passes to curl or grpcurl."""
    printing = 'curl() { printf "%s\\0" "$@"; }; grpcurl() { curl "$@"; }\n'
    done = subprocess.run(["sh", "-c", printing + command], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\0")[:-1]


def texts() -> Any:
    """Return a model that echoes text with special characters, and missing and large numbers, all in EXAMPLE."""
    tensors = [
        MetadataTensor("te'xt", "BYTES", [-1], "str"),
        MetadataTensor("gaps", "FP64", [-1]),
        MetadataTensor("large", "UINT64", [-1, 2]),
        MetadataTensor("flag", "BOOL", [1]),
    ]

    def back(_: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        return inputs

    module = models.model(tensors, tensors, back)
    module.EXAMPLE = {"te'xt": TEXTS, "gaps": [float("nan"), 1e300], "large": [[2**64 - 1, 2**64 - 2]], "flag": [True]}
    return module


def test_calls_send_form_values(visit: Open, serve: Serve) -> None:
    """The calls for curl and grpcurl send the same values as the form, and the service accepts them."""
    app = serve(texts())
    page = visit(app.address)
    found = shown(page)
    url, option, body = arguments(found["curl"])
    assert (url, option) == (f"{app.address}v2/models/test/infer", "-d")
    assert json.loads(body) == predict(page)
    plaintext, option, message, target, method = arguments(found["grpcurl"])
    assert (plaintext, option, method) == ("-plaintext", "-d", "inference.GRPCInferenceService/ModelInfer")
    assert target == f"127.0.0.1:{Settings().grpc_port}"
    text, gaps, large, flag = [each.contents for each in Parse(message, ModelInferRequest()).inputs]
    assert list(text.bytes_contents) == [each.encode() for each in TEXTS]
    assert np.isnan(gaps.fp64_contents[0])
    assert list(large.uint64_contents) == [2**64 - 1, 2**64 - 2]
    assert list(flag.bool_contents) == [True]
    (loop,) = [
        node for node in ast.parse(found["python"]).body if isinstance(node, ast.For) and "data" in ast.dump(node)
    ]
    data = {name: values for name, _, _, values in ast.literal_eval(loop.iter)}
    assert data["large"] == [2**64 - 1, 2**64 - 2]
    assert data["te'xt"] == TEXTS


def test_calls_of_values_without_a_form(visit: Open, serve: Serve) -> None:
    """Only JSON has missing text, and grpcurl cannot send FP16: the calls contain a comment."""
    module = models.echo("BYTES", [-1])
    module.EXAMPLE = {"x": ["a", None]}
    found = shown(visit(serve(module).address))
    assert json.loads(arguments(found["curl"])[-1])["inputs"][0]["data"] == ["a", None]
    assert 'Missing text is ""' in found["python"]
    assert json.loads(arguments(found["grpcurl"])[2])["inputs"][0]["contents"] == {"bytes_contents": ["YQ==", ""]}
    assert shown(visit(serve(models.echo("FP16", [-1])).address))["grpcurl"].startswith("# grpcurl cannot send FP16")


def test_calls_over_tls_with_keys(visit: Open, tmp_path: Path) -> None:
    """Over TLS the page names the options for the certificate, and each call takes the API key from the environment."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    file = tmp_path / "keys.txt"
    file.write_text(KEY)

    def is_ready(running: Running) -> bool:
        with suppress(OSError):
            context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
            return urlopen(f"https://{running.http}/v2/health/ready", context=context).status == 200
        return False

    settings = {"TLS_CERT_FILE": tmp_path / "tls.pem", "TLS_KEY_FILE": tmp_path / "tls.pem", "API_KEYS_FILE": file}
    with gunicorn(ROOT, is_ready=is_ready, **settings) as running:
        address = f"https://{running.http}/"
        page = visit(address, ignore_https_errors=True, http_credentials={"username": "anyone", "password": KEY})
        found = shown(page)
        expect(page.get_by_text("If the certificate is not trusted")).to_be_visible()
    assert "ssl=True" in found["python"]
    assert "-plaintext" not in found["grpcurl"]
    for tool in ("curl", "grpcurl"):
        assert '-H "Authorization: Bearer $API_KEY"' in found[tool]
    assert """headers={"Authorization": f"Bearer {os.environ['API_KEY']}"}""" in found["python"]


def test_calls_follow_form(visit: Open, all_kinds: str) -> None:
    """The shown and copied calls equal the sent request, with special characters, files and a path prefix.

    If the form is invalid, the page shows the last valid calls.
    """
    address = f"{all_kinds}{PREFIX}/"
    page = visit(address, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("text").fill('["it\'s $(id)\\n", null]')
    page.get_by_label("matrix").fill("1\t2\n3\t-9007199254740993")
    page.get_by_label("one").fill("1e-3")
    page.get_by_label("flag").uncheck()
    page.get_by_label("picture").set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": PNG * 2})
    sent = predict(page)
    data = [each["data"] for each in sent["inputs"]]
    assert data[:4] == [["it's $(id)\n", None], [1, 2, 3, -9007199254740993], [0.001], [False]]
    assert base64.b64decode(data[4][0]) == PNG * 2
    expect(page.locator('[data-tool="curl"] code')).to_contain_text("1e-3")
    url, _, body = arguments(shown(page)["curl"])
    assert (url, json.loads(body)) == (f"{address}v2/models/test/infer", sent)
    assert f'InferenceServerClient("{address.removeprefix("http://").rstrip("/")}")' in shown(page)["python"]
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied the request with curl.")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == shown(page)["curl"]
    old = page.get_by_text("The form has an error. These are the last valid requests.")
    for text, count in (("many", 1), ("5 6", 0)):
        page.get_by_label("matrix").fill(text)
        expect(old).to_have_count(count)


def test_long_call_uses_standard_input(visit: Open, all_kinds: str) -> None:
    """A body that is too long for a command argument is passed by standard input."""
    page = visit(all_kinds, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("text").fill("'" * 70000)
    expect(page.locator('[data-tool="curl"] code')).to_contain_text("''' …")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied the request with curl.")).to_be_attached()
    command = page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(["sh", "-c", 'curl() { echo "$2 $3"; cat; }\n' + command], capture_output=True, text=True)
    options, body = done.stdout.split("\n", 1)
    assert options == "-d @-"
    assert json.loads(body)["inputs"][0]["data"] == ["'" * 70000]


def test_outputs_are_displayed(visit: Open, all_kinds: str) -> None:
    """Outputs with the same number of rows share a table, with bars for probabilities, images and exact integers."""
    page = visit(all_kinds)
    predict(page)
    many, one = page.locator("#outputs table").all()
    assert many.locator("thead th").all_text_contents() == ["Row", "text back", "sums", "chances"]
    first = many.locator("tbody tr").first
    assert first.locator("td").nth(1).text_content() == "9007199254740993"
    assert first.get_by_role("listitem").all_inner_texts() == ["0\n25.0 %", "1\n75.0 %", "2\n0.0 %"]
    assert [each.get_attribute("alt") for each in one.locator("img").all()] == ["picture back, row 0"]
    assert one.locator("canvas").count() == 1
    page.get_by_label("flag").uncheck()
    predict(page)
    assert page.locator(".bars").count() == 0


def test_image_previews_keep_aspect_ratio(visit: Open, all_kinds: str) -> None:
    """Previews of images with different sizes keep their aspect ratio."""
    page = visit(all_kinds)
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="{height}"/>'
    files = [
        {"name": f"{height}.svg", "mimeType": "image/svg+xml", "buffer": svg.format(height=height).encode()}
        for height in (40, 160)
    ]
    page.get_by_label("picture").set_input_files(files)
    low = page.get_by_alt_text("40.svg")
    expect(low).to_have_js_property("complete", True)
    box = low.bounding_box()
    assert box["width"] / box["height"] == pytest.approx(1.5, abs=0.05)


def test_table_input(visit: Open, columns: str) -> None:
    """Columns have one field each or are pasted from a spreadsheet, and only the first 200 rows are displayed."""
    page = visit(columns)
    for text, value in (("+09007199254740993", 2**53 + 1), ("-00.50e1", -5), ("", None)):
        page.get_by_label("number").fill(text)
        assert [each["data"] for each in predict(page)["inputs"]] == [[value], ["one"], [True]]
    expect(page.get_by_role("row", name="number null")).to_be_visible()

    page.get_by_label("Several rows").check()
    expect(page.get_by_label("CSV")).to_have_value("number,word,is it\n1.5,one,true")
    page.get_by_label("CSV").fill('\nword\tNUMBER\tIs It\n"tab\there"\t.5\tTRUE\n\n\t\t0\n \n')
    sent = {each["name"]: (each["shape"], each["data"]) for each in predict(page)["inputs"]}
    assert sent == {"number": ([2], [0.5, None]), "word": ([2], ["tab\there", None]), "is it": ([2], [True, 0])}
    expect(page.get_by_role("row", name="1 null null false")).to_be_visible()
    expect(page.locator("#outputs caption")).to_have_text("2 rows.")

    page.get_by_label("CSV").fill("\n".join(["1;x;true"] * 201))
    predict(page)
    expect(page.get_by_text("The first 200 of 201 rows.")).to_be_attached()
    assert page.locator("#outputs tbody tr").count() == 200


@pytest.mark.parametrize(
    ("model", "label", "cases"),
    [
        (
            "columns",
            "CSV",
            [
                ("number,stranger\n1,2", 'The model has no input "stranger".'),
                ("number,word\n1,a\n2,b,c", "Row 2 has 3 cells, expected 2."),
                ("number,word\n1", "Row 1 has 1 cell, expected 2."),
                ("1,a", "Row 1 has 2 cells, expected 3."),
                ('number,word\n1,"a\n2,b', 'A cell that begins with a quote must end with one: "a'),
                ('number,word\n"5,1;3",a', 'number: "5,1;3" in row 1 is not a number.'),
                ("number,word\n1,a\n\n-1e400,b", 'number: "-1e400" in row 2 is infinite. JSON has no infinity.'),
                ("is it,word\nmaybe,a", 'is it: "maybe" in row 1 is neither true nor false.'),
                ("number,word\n\n", "The table has no rows."),
                ("\n", "The table is empty."),
            ],
        ),
        (
            "columns",
            "number",
            [
                ("3,5", 'number: "3,5" is not a number.'),
                ("39.1\t18.7", r'number: "39.1\t18.7" is not a number.'),
                ("1 2", 'number: "1 2" is not a number.'),
                ("abc", 'number: "abc" is not a number.'),
            ],
        ),
        (
            "rows",
            "cube",
            [
                ("1 2 3\n4 5 six", 'cube: "six" in row 2, column 3 is not a number.'),
                ("1, inf", 'cube: "inf" in row 1, column 2 is infinite. JSON has no infinity.'),
                ("[[[1, 2, 3], [4, 5, 1e400]]]", "cube: JSON has no infinity."),
                ("1 2\n3 4 5 6", "cube: row 1 has 2 values, expected 3."),
                ("1 2 3\n\n4", "cube: row 2 has 1 value, expected 3."),
                ("[[1,2],[3,4],[5,6]]", "cube: row 1 has 2 values, expected 3."),
                ("[[[1,2,3],[4,5]]]", "cube: row 2 has 2 values, expected 3."),
                ("[[[1,2,3],[4,5,6]],[[7,8,9]]]", "cube: block 2 has 1 row, expected 2."),
                ("[[1,2,3],4,5,6]", "cube: a list must contain either lists or values."),
                ("[1, 2", re.compile("^cube: .*JSON")),
            ],
        ),
        ("rows", "words", [("a, b\nc", "words: row 2 has 1 value, expected 2.")]),
    ],
)
def test_rejects_invalid_form_values(
    visit: Open, request: pytest.FixtureRequest, model: str, label: str, cases: list[tuple[str, Any]]
) -> None:
    """Invalid input is reported with its position, and no request is sent."""
    page = visit(request.getfixturevalue(model))
    asked = []
    page.on("request", lambda each: asked.append(each.url))
    if label == "CSV":
        page.get_by_label("Several rows").check()
    for text, said in cases:
        page.get_by_label(label).fill(text)
        page.get_by_role("button", name="Predict").click()
        expect(page.get_by_role("alert")).to_have_text(said)
    assert not [url for url in asked if url.endswith("/infer")]


def test_grid_input(visit: Open, rows: str) -> None:
    """Blank lines separate matrices, flat lists take the declared shape, and text is quoted like in CSV."""
    page = visit(rows)
    for each in predict(page)["inputs"]:
        np.testing.assert_array_equal(np.reshape(each["data"], each["shape"]), grids().EXAMPLE[each["name"]])
    page.get_by_label("words").fill('"a;b", c\n\n"d ""e""\nf", ""')
    for text in (
        "1 2 3\n4 5 6\n\n7 8 9\n10 11 12\n",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "[1,2,3,4,5,6,7,8,9,10,11,12]",
        "[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]]]",
    ):
        page.get_by_label("cube").fill(text)
        cube, words, _ = predict(page)["inputs"]
        assert (cube["shape"], cube["data"]) == ([2, 2, 3], list(range(1, 13)))
        assert (words["shape"], words["data"]) == ([2, 2], ["a;b", "c", 'd "e"\nf', ""])


def test_text_input(visit: Open, all_kinds: str) -> None:
    """Each line is a text, including empty lines between others and lines that start like a list."""
    page = visit(all_kinds)
    for text, sent in [
        ("[INST] hello\n\nworld\n\n", ["[INST] hello", "", "world"]),
        ('["a\\nb", "[c]"]', ["a\nb", "[c]"]),
    ]:
        page.get_by_label("text").fill(text)
        assert predict(page)["inputs"][0]["data"] == sent


def test_optional_inputs(visit: Open, serve: Serve) -> None:
    """An optional BOOL has three states: true, false and absent. An empty optional number is left out."""
    columns = [MetadataTensor("number", "FP64", [-1]), MetadataTensor("more", "FP64", [-1])]
    flag = MetadataTensor("flag", "BOOL", [-1])

    def predict_(_: Any, number: Any, more: Any = None, flag: Any = None) -> dict[str, Any]:
        return {"number": number}

    page = visit(serve(models.model([*columns, flag], columns[:1], predict_)).address)
    assert [each["name"] for each in predict(page)["inputs"]] == ["number"]
    for choice, value in (("true", True), ("false", False)):
        page.get_by_label("flag").select_option(choice)
        assert predict(page)["inputs"][1]["data"] == [value]
    check(page)
    page.get_by_label("flag").select_option("absent")
    assert [each["name"] for each in predict(page)["inputs"]] == ["number"]


def test_page_waits_for_model(visit: Open, serve: Serve) -> None:
    """Until the model is ready, the button is disabled. The page detects by itself when it is ready."""
    app = serve(models.echo("FP32", [-1]))
    app.extensions["service"].plane.is_warm = False
    page = visit(app.address)
    expect(page.locator("#state")).to_have_text("Loading")
    expect(page.get_by_role("button", name="Predict")).to_be_disabled()
    expect(page.get_by_text("You can send requests as soon as the model is ready.")).to_be_visible()
    app.extensions["service"].plane.is_warm = True
    expect(page.locator("#state")).to_have_text("Ready")
    predict(page)
    expect(page.get_by_role("table").first).to_be_visible()


def test_wide_result_scrolls(visit: Open, columns: str) -> None:
    """On a narrow screen, a wide table scrolls in a box that the keyboard reaches, and values do not wrap."""
    page = visit(columns, viewport={"width": 390, "height": 800})
    page.get_by_label("Several rows").check()
    date, text = "2024-01-31T12:00:00.123456+00:00", "a text of well-known words that is longer than a line"
    page.get_by_label("CSV").fill(f"number,word,is it\n-1.234567890123456e-305,{date},true\n1,{text},false")
    predict(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    number, when, _, _, words, _ = (lines(each) for each in page.locator("#outputs td").all())
    assert (number, when) == (1, 1)
    assert words > 1
    assert lines(page.locator("#outputs td span").get_by_text("well-known")) == 1
    box = page.get_by_role("group", name="Rows")
    box.evaluate("each => each.addEventListener('scroll', () => { each.dataset.left = each.scrollLeft; })")
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
        for scheme, colour in (("light", "rgb(246, 246, 244)"), ("dark", "rgb(15, 17, 21)")):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
            check(page)
    page.get_by_label("number").fill("many")
    page.get_by_role("button", name="Predict").click()
    expect(page.get_by_role("alert")).to_have_text('number: "many" is not a number.')
    check(page)


def check(page: Page) -> None:
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()
