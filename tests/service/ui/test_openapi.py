"""The OpenAPI descriptions and their Swagger UI pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from app.protocol.datatypes import DATATYPES
from app.protocol.metadata import MetadataTensor
from app.rest.schemas import InferenceRequestSchema, RequestInputSchema
from tests.kit import models

ROOT = Path(__file__).parents[3]
SERVICE, MODEL = "/v2/docs/openapi.json", "/v2/models/test/docs/openapi.json"
PAGES = [
    "/v2/docs",
    "/v2/docs/",
    "/v2/models/test/docs",
    "/v2/models/test/docs/",
    "/v2/models/test/versions/1/docs",
]


@pytest.fixture(scope="module")
def client(serve):
    return serve(models.two_by_two()).client


def infer_of(description: dict[str, Any], path: str = "/v2/models/{name}/infer") -> dict[str, Any]:
    return description["paths"][path]["post"]


def test_example_that_is_not_text(serve) -> None:
    """If EXAMPLE has bytes that are not UTF-8, the description has an example with text."""
    module = models.echo("BYTES", [-1])
    module.EXAMPLE = {"x": [b"\xff"]}
    client = serve(module).client
    example = infer_of(client.get(MODEL).json)["requestBody"]["content"]["application/json"][
        "example"
    ]
    assert client.post("/v2/models/test/infer", json=example).status_code == 200


def test_every_route_is_described(client) -> None:
    """The descriptions contain all routes of the protocol, of the metrics and of the descriptions."""
    every = client.application.url_map.iter_rules()
    rules = [rule for rule in every if rule.endpoint.split(".")[0] in ("rest", "openapi")]
    routes = {
        (rule.rule.replace("<", "{").replace(">", "}"), verb)
        for rule in rules
        for verb in rule.methods or ()
    }
    documented = {
        (path, verb.upper())
        for path, item in client.get(SERVICE).json["paths"].items()
        for verb in item
    }
    assert documented == {(path, verb) for path, verb in routes if verb not in ("HEAD", "OPTIONS")}
    assert client.get(MODEL).json["paths"] == client.get(SERVICE).json["paths"]


def test_unknown_model_or_version(client) -> None:
    """The description and the page of an unknown model or version return 404."""
    for path in ("/v2/models/other/docs", "/v2/models/test/versions/2/docs"):
        for url in (path, f"{path}/openapi.json", f"{path}/swagger.js"):
            response = client.get(url)
            assert (response.status_code, list(response.json)) == (404, ["error"])


@pytest.mark.parametrize(
    "path", [SERVICE, MODEL, "/v2/models/test/versions/1/docs/openapi.json", f"{MODEL}/"]
)
def test_server_url_is_relative(client, path: str) -> None:
    """The server URL is relative to the description, so that it is right behind a proxy with a path prefix."""
    (server,) = client.get(path).json["servers"]
    assert urljoin(f"https://proxy/some/where{path}", server["url"]) == "https://proxy/some/where/"


def test_description_has_etag(client) -> None:
    """A request with the current ETag returns 304, and HEAD returns the length of the description."""
    response = client.get(MODEL)
    again = client.get(MODEL, headers={"If-None-Match": response.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert client.head(MODEL).headers["Content-Length"] == str(len(response.data))


@pytest.mark.parametrize("path", PAGES)
def test_page_has_relative_urls(client, path: str) -> None:
    """All resources of a page exist and have URLs below the page, also behind a proxy with a path prefix."""
    page = client.get(path)
    assert page.mimetype == "text/html"
    addresses = re.findall(r'(?:src|href|data-description)="(.*?)"', page.text)
    assert len(addresses) == 6
    for address in addresses:
        url = urljoin(f"https://proxy/some/where{path}", address)
        assert url.startswith(f"https://proxy/some/where{path.rstrip('/')}/")
        with client.get(urlsplit(url).path.removeprefix("/some/where")) as part:
            assert part.status_code == 200
    assert not re.search(r"<script>|<style|style=|//| on\w+=", page.text)


def test_content_security_policy(client) -> None:
    """The Content-Security-Policy allows scripts and styles only from the service."""
    directives = client.get("/v2/docs").headers["Content-Security-Policy"].split("; ")
    policy = {name: sources for name, *sources in map(str.split, directives)}
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"]
    assert {source for sources in policy.values() for source in sources} <= {
        "'none'",
        "'self'",
        "data:",
    }


@pytest.mark.parametrize("file", ["index.html", "../__init__.py", "oauth2-redirect.html"])
def test_other_files_are_not_served(client, file: str) -> None:
    """Files of the Swagger UI package that the pages do not need return 404."""
    assert client.get(f"/v2/docs/{file}").status_code == 404


def test_without_ui(serve) -> None:
    """UI_ENABLED=off removes the pages and their files, but not the descriptions."""
    client = serve(models.two_by_two(), ui_enabled=False).client
    assert [client.get(path).status_code for path in (SERVICE, MODEL)] == [200, 200]
    assert {client.get(path).status_code for path in [*PAGES, "/v2/docs/swagger.js"]} == {404}


def test_description_of_api_keys(serve, client, tmp_path: Path) -> None:
    """With API keys, the description lists the security schemes and marks the routes that need no key."""
    assert "securitySchemes" not in client.get(SERVICE).json["components"]
    keys = tmp_path / "keys.txt"
    keys.write_text("0123456789abcdef\n")
    client = serve(models.two_by_two(), api_keys_file=keys).client
    assert {client.get(path).status_code for path in [SERVICE, MODEL, *PAGES]} == {401}
    document = client.get(SERVICE, headers={"x-api-key": "0123456789abcdef"}).json
    assert sorted(
        scheme["type"] for scheme in document["components"]["securitySchemes"].values()
    ) == [
        "apiKey",
        "http",
    ]
    assert {name for requirement in document["security"] for name in requirement} == document[
        "components"
    ]["securitySchemes"].keys()
    for path, item in document["paths"].items():
        for operation in item.values():
            is_free = path.endswith(("/live", "/ready", "/metrics"))
            assert (operation.get("security") == [], "401" in operation["responses"]) == (
                is_free,
                not is_free,
            ), path


def test_unused_description_is_not_loaded() -> None:
    """The first request for a description imports its module, and the Swagger UI package is never imported."""
    code = """if True:
        import sys
        from app import create_app
        from tests.kit import models
        client = create_app(module=models.two_by_two()).test_client()
        loaded = lambda: {"app.ui.openapi", "flask_swagger_ui"} & sys.modules.keys()
        print(loaded(), client.get("/v2/models/test/docs").status_code, loaded())
        print(client.get("/v2/docs/openapi.json").status_code, loaded())
    """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set() 200 set()\n200 {'app.ui.openapi'}\n"


def test_template_matches_code(client) -> None:
    """The description lists the datatypes and the members of a request that the code accepts."""
    schemas = client.get(SERVICE).json["components"]["schemas"]
    assert schemas["Datatype"]["enum"] == list(DATATYPES)
    config = schemas["ModelConfig"]["properties"]["input"]["items"]["properties"]["data_type"][
        "enum"
    ]
    assert config == [
        MetadataTensor("x", datatype, []).config()["data_type"] for datatype in DATATYPES
    ]
    tensors = schemas["InferenceRequest"]["properties"]["inputs"]["items"]["oneOf"]
    for described, schema in [
        (schemas["InferenceRequest"], InferenceRequestSchema()),
        *((tensor, RequestInputSchema()) for tensor in tensors),
    ]:
        assert described["properties"].keys() == schema.fields.keys()
        required = {name for name, field in schema.fields.items() if field.required}
        assert required <= set(described["required"])
