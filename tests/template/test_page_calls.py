"""The model page in a browser: the calls that it shows and sends."""

from __future__ import annotations

import ast
import base64
import json
import re
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import trustme
from google.protobuf.json_format import Parse
from playwright.sync_api import Browser, Page, expect

from app.api import MetadataTensor
from app.config.settings import Settings
from grpc_service.messages import ModelInferRequest
from tests.kit import models
from tests.kit.processes import Running, gunicorn

from .helm import ROOT
from .page import PNG, PREFIX, Open, Serve, predict

KEY = "first-key-0123456789"

# Text that a shell would change if it was not quoted.
TEXTS = ['it\'s $HOME `id` \\ "quoted" !x', "two\nlines", "ü 🌷", ""]


def shown(page: Page) -> dict[str, str]:
    """Return the calls that the page shows."""
    return {
        tool: page.locator(f'[data-tool="{tool}"] code').text_content()
        for tool in ("curl", "python", "grpcurl")
    }


def test_keyboard_and_api_key(visit: Open, chromium: Browser, tmp_path: Path) -> None:
    """With an API key and only the keyboard, a user can send the form and read a result and an error."""
    file = tmp_path / "keys.txt"
    file.write_text(KEY)
    with gunicorn(ROOT, API_KEYS_FILE=file) as running:
        address = f"http://{running.http_address}/"
        anonymous = chromium.new_context()
        assert anonymous.request.get(address, headers={"Accept": "text/html"}).status == 401
        anonymous.close()
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
        response = page.get_by_role("region", name="Response")
        expect(response.get_by_role("row", name="label virginica")).to_be_visible()
        expect(response.get_by_role("listitem")).to_have_text(
            [re.compile("^0"), re.compile("^1"), re.compile("^2.* %")]
        )
        expect(response.get_by_role("status")).to_contain_text("Round trip")
        expect(page.get_by_role("img", name=re.compile("requests per second"))).to_be_visible()

        page.get_by_label("features").fill("5.1 3.5 1.4 0.2\n6 2.9 4.5 1.5\n6.7 3 5.2 2.3")
        page.keyboard.press("Control+Enter")
        expect(response.get_by_role("row", name="1 versicolor")).to_be_visible()
        assert [item[0] for item in response.get_by_role("listitem").all_inner_texts()] == list(
            "012" * 3
        )
        page.set_viewport_size({"width": 390, "height": 800})
        assert (
            response.get_by_role("group", name="Rows").evaluate(
                "each => each.scrollWidth - each.clientWidth"
            )
            == 0
        )

        page.get_by_label("features").fill("6.7, 3.0")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_have_text(re.compile(r'Input "features": .*\(400\)'))
        expect(response.get_by_role("table")).to_have_count(0)


def arguments(command: str) -> list[str]:
    """Return the arguments that a shell passes to curl or grpcurl."""
    printing = 'curl() { printf "%s\\0" "$@"; }; grpcurl() { curl "$@"; }\n'
    done = subprocess.run(
        ["sh", "-c", printing + command], capture_output=True, text=True, timeout=30
    )
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

    def echo(_: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        return inputs

    module = models.model(tensors, tensors, echo)
    module.EXAMPLE = {
        "te'xt": TEXTS,
        "gaps": [float("nan"), 1e300],
        "large": [[2**64 - 1, 2**64 - 2]],
        "flag": [True],
    }
    return module


def test_calls_send_form_values(visit: Open, serve: Serve) -> None:
    """The calls for curl and grpcurl send the same values as the form."""
    app = serve(texts())
    page = visit(app.address)
    sent = predict(page)
    calls = shown(page)
    url, option, body = arguments(calls["curl"])
    assert (url, option) == (f"{app.address}v2/models/test/infer", "-d")
    assert json.loads(body) == sent
    plaintext, option, message, target, method = arguments(calls["grpcurl"])
    assert (plaintext, option, method) == (
        "-plaintext",
        "-d",
        "inference.GRPCInferenceService/ModelInfer",
    )
    assert target == f"127.0.0.1:{Settings().grpc_port}"
    text, gaps, large, flag = [
        tensor.contents for tensor in Parse(message, ModelInferRequest()).inputs
    ]
    assert list(text.bytes_contents) == [text.encode() for text in TEXTS]
    assert np.isnan(gaps.fp64_contents[0])
    assert list(large.uint64_contents) == [2**64 - 1, 2**64 - 2]
    assert list(flag.bool_contents) == [True]
    (loop,) = [
        node
        for node in ast.parse(calls["python"]).body
        if isinstance(node, ast.For) and "data" in ast.dump(node)
    ]
    data = {name: values for name, _, _, values in ast.literal_eval(loop.iter)}
    assert data["large"] == [2**64 - 1, 2**64 - 2]
    assert data["te'xt"] == TEXTS


def test_calls_of_files_and_missing_text(visit: Open, serve: Serve) -> None:
    """C12, C13: each call sends files and missing text in its form, and the form sends base64 text for files."""
    tensors = [
        MetadataTensor("raw", "BYTES", [-1], "bytes"),
        MetadataTensor("text", "BYTES", [-1], "base64"),
        MetadataTensor("gap", "BYTES", [-1], "str", missing="NA"),
    ]

    def echo(_: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        return inputs

    module = models.model(tensors, tensors, echo)
    encoded = base64.b64encode(PNG).decode()
    module.EXAMPLE = {"raw": [PNG], "text": [encoded], "gap": ["a", None]}
    page = visit(serve(module).address)
    sent = predict(page)
    calls = shown(page)
    assert json.loads(arguments(calls["curl"])[-1]) == sent
    assert [tensor["data"] for tensor in sent["inputs"]] == [[encoded], [encoded], ["a", None]]
    expect(page.get_by_role("img", name="raw, row 0")).to_be_visible()
    for label in ("raw", "text"):
        page.get_by_label(label).set_input_files(
            {"name": "dot.png", "mimeType": "image/png", "buffer": PNG * 2}
        )
    twice = base64.b64encode(PNG * 2).decode()
    assert [tensor["data"] for tensor in predict(page)["inputs"]] == [[twice], [twice], ["a", None]]
    message = Parse(arguments(calls["grpcurl"])[2], ModelInferRequest())
    contents = [list(tensor.contents.bytes_contents) for tensor in message.inputs]
    assert contents == [[PNG], [encoded.encode()], [b"a", b"NA"]]
    assert "Missing text" not in calls["python"] + calls["grpcurl"]
    assert "from base64 import b64decode\n" in calls["python"]
    assert f'("raw", "BYTES", [1], [b64decode("{encoded}")]),' in calls["python"]
    assert f'("text", "BYTES", [1], ["{encoded}"]),' in calls["python"]
    assert '("gap", "BYTES", [2], ["a", "NA"]),' in calls["python"]


def test_values_that_a_client_cannot_send(visit: Open, serve: Serve) -> None:
    """Only JSON has missing text, and grpcurl cannot send FP16 and BF16: a comment replaces the calls of others."""

    def found(module: Any) -> dict[str, str]:
        page = visit(serve(module).address)
        predict(page)
        return shown(page)

    text = [MetadataTensor("x", "BYTES", [-1], "str")]
    module = models.model(text, text, lambda _, x: {"x": x})
    module.EXAMPLE = {"x": ["a", None]}
    calls = found(module)
    assert json.loads(arguments(calls["curl"])[-1])["inputs"][0]["data"] == ["a", None]
    assert (
        calls["python"] == calls["grpcurl"] == "# Only JSON can represent missing text. Use curl."
    )
    for datatype in ("FP16", "BF16"):
        expected = f"# grpcurl cannot send {datatype}"
        assert found(models.echo(datatype, [-1]))["grpcurl"].startswith(expected)


def test_calls_over_tls_with_keys(visit: Open, tmp_path: Path) -> None:
    """Over TLS the page names the options for the certificate, and each call takes the API key from the environment."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "tls.pem"
    )
    file = tmp_path / "keys.txt"
    file.write_text(KEY)

    def is_ready(running: Running) -> bool:
        with suppress(OSError):
            context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
            return (
                urlopen(f"https://{running.http_address}/v2/health/ready", context=context).status
                == 200
            )
        return False

    settings = {
        "TLS_CERT_FILE": tmp_path / "tls.pem",
        "TLS_KEY_FILE": tmp_path / "tls.pem",
        "API_KEYS_FILE": file,
    }
    with gunicorn(ROOT, is_ready=is_ready, **settings) as running:
        address = f"https://{running.http_address}/"
        page = visit(
            address,
            ignore_https_errors=True,
            http_credentials={"username": "anyone", "password": KEY},
        )
        predict(page)
        calls = shown(page)
        expect(page.get_by_text("If the certificate is not trusted")).to_be_visible()
    assert "ssl=True" in calls["python"]
    assert "-plaintext" not in calls["grpcurl"]
    for tool in ("curl", "grpcurl"):
        assert '-H "Authorization: Bearer $API_KEY"' in calls[tool]
    assert """headers={"Authorization": f"Bearer {os.environ['API_KEY']}"}""" in calls["python"]


def test_calls_equal_the_request(visit: Open, all_kinds: str) -> None:
    """The shown and copied calls equal the sent request, with special characters, files and a path prefix."""
    address = f"{all_kinds}{PREFIX}/"
    page = visit(address, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("text").fill('["it\'s $(id)\\n", "a\\/b"]')
    page.get_by_label("matrix").fill("1\t2\n3\t-9007199254740993")
    page.get_by_label("one").fill("1e-3")
    page.get_by_label("flag").uncheck()
    page.get_by_label("picture").set_input_files(
        {"name": "dot.png", "mimeType": "image/png", "buffer": PNG * 2}
    )
    sent = predict(page)
    data = [tensor["data"] for tensor in sent["inputs"]]
    assert data[:4] == [["it's $(id)\n", "a/b"], [1, 2, 3, -9007199254740993], [0.001], [False]]
    assert base64.b64decode(data[4][0]) == PNG * 2
    expect(page.locator('[data-tool="curl"] code')).to_contain_text("1e-3")
    url, _, body = arguments(shown(page)["curl"])
    assert (url, json.loads(body)) == (f"{address}v2/models/test/infer", sent)
    assert (
        '"a/b"' in shown(page)["python"]
    )  # in Python, the backslash of JSON would be part of the text
    assert (
        f'InferenceServerClient("{address.removeprefix("http://").rstrip("/")}")'
        in shown(page)["python"]
    )
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied the request with curl.")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == shown(page)["curl"]


def test_long_call_uses_standard_input(visit: Open, all_kinds: str) -> None:
    """A body that is too long for a command argument is passed by standard input."""
    page = visit(all_kinds, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("text").fill("'" * 70000)
    predict(page)
    expect(page.locator('[data-tool="curl"] code')).to_contain_text("''' …")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied the request with curl.")).to_be_attached()
    command = page.evaluate("navigator.clipboard.readText()")
    done = subprocess.run(
        ["sh", "-c", 'curl() { echo "$2 $3"; cat; }\n' + command], capture_output=True, text=True
    )
    options, body = done.stdout.split("\n", 1)
    assert options == "-d @-"
    assert json.loads(body)["inputs"][0]["data"] == ["'" * 70000]
