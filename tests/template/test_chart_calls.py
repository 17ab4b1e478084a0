"""deploy/helm: the pods of `helm test` call a real service, and the notes show how to call it."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trustme

from tests.kit.processes import Running, free_ports, gunicorn, started, wait_for
from tests.kit.waiting_client import is_live

from .chart_values import ENABLED, FEATURES, GATEWAY, KEYS, TLS, Values
from .helm import ROOT, missing
from .manifests import CHART, READY, Render, environment

NAME = "demo-open-inference-service.default.svc"
KINDS = ("rest", "grpc")


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a mounted TLS Secret: the certificate for the Service's name, its key, and the authority's certificate."""
    folder, authority = tmp_path_factory.mktemp("secret"), trustme.CA()
    issued = authority.issue_cert(NAME, "127.0.0.1")
    (folder / "tls.crt").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(folder / "tls.key")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    return folder


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    """Start the service on all addresses of this machine."""
    with gunicorn(ROOT, WORKERS=1, HOST="::") as service:
        yield service


@pytest.fixture(scope="module")
def guarded(secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start the service with TLS and API keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("a key of 16 characters\n".replace(" ", "-"))
    settings = {
        "TLS_CERT_FILE": secret / "tls.crt",
        "TLS_KEY_FILE": secret / "tls.key",
        "API_KEYS_FILE": keys,
    }
    settings |= dict(zip(("HTTP_PORT", "GRPC_PORT"), free_ports(2), strict=True))
    settings |= {"HOST": "127.0.0.1", "WORKERS": 1, "SHUTDOWN_DELAY_SECONDS": 0}

    def ready(service: Running) -> bool:
        return "is ready" in service.log()

    with started(
        [sys.executable, "-m", "gunicorn", "app:create_app()"], ROOT, settings, ready
    ) as service:
        yield service


def run_test_pod(
    render: Render, kind: str, address: str, values: Values, **other: object
) -> subprocess.CompletedProcess[str]:
    """Run the command of the `helm test` pod with its variables, the service's address and `other` variables."""
    (container,) = render(**values)[f"Pod/test-{kind}"]["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    env = {**os.environ, **environment(container), "ADDRESS": address}
    env |= {name: str(value) for name, value in other.items()}
    command = [sys.executable, "-c", *container["args"]]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180)


def address_of(service: Running, kind: str) -> str:
    return service.http_address if kind == "rest" else service.grpc_address


@pytest.mark.parametrize("kind", KINDS)
def test_helm_test_finds_the_service(render: Render, plain: Running, kind: str):
    """The `helm test` pod succeeds if the model is ready, and fails if nothing listens on the port."""
    done = run_test_pod(render, kind, address_of(plain, kind), {})
    assert done.returncode == 0, done.stderr
    (port,) = free_ports(1)
    assert run_test_pod(render, kind, f"127.0.0.1:{port}", {}).returncode != 0


def test_service_listens_on_ipv6(plain: Running):
    """With HOST=::, both protocols respond over IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        missing("IPv6")
    connection = http.client.HTTPConnection("::1", plain.http_port, timeout=10)
    connection.request("GET", READY)
    assert connection.getresponse().status == 200
    connection.close()
    with grpc.insecure_channel(f"[::1]:{plain.grpc_port}") as channel:
        grpc.channel_ready_future(channel).result(10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("files", [("tls.crt", "ca.crt"), ("tls.crt",)], ids=str)
def test_helm_test_verifies_tls(
    render: Render,
    guarded: Running,
    secret: Path,
    tmp_path: Path,
    kind: str,
    files: tuple[str, ...],
):
    """The pod trusts the Secret's certificates, needs no API key, and fails for another server name or without TLS."""
    for file in files:
        shutil.copy(secret / file, tmp_path)
    values, address = {**TLS, **KEYS}, address_of(guarded, kind)
    done = run_test_pod(render, kind, address, values, CERTIFICATES=tmp_path)
    assert done.returncode == 0, done.stderr
    other = {"tls": {"existingSecret": "certificate", "serverName": "other.example.com"}}
    assert run_test_pod(render, kind, address, other, CERTIFICATES=tmp_path).returncode != 0
    assert run_test_pod(render, kind, address, {}).returncode != 0


def test_helm_test_fails_if_no_model_is_ready(render: Render, tmp_path: Path):
    """The `helm test` pod fails if the service responds but load() has not finished."""
    with gunicorn(
        ROOT, "tests.service.apps:loading()", is_ready=is_live, WORKERS=1, FOLDER=tmp_path
    ) as service:
        for kind in KINDS:
            done = run_test_pod(render, kind, address_of(service, kind), {})
            assert done.returncode != 0
            assert ("503" if kind == "rest" else "NOT_SERVING") in done.stderr
        (tmp_path / "loaded").touch()
        wait_for(service.ready)


def test_helm_test_mounts_no_private_key(render: Render):
    """The `helm test` pods mount only certificates, and start even if the Secret has no ca.crt."""
    for kind in KINDS:
        pod = render(**TLS)[f"Pod/test-{kind}"]["spec"]
        (volume,) = pod["volumes"]
        assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "ca.crt"]
        assert volume["secret"]["optional"] is True
        assert (
            pod["containers"][0]["volumeMounts"][0]["mountPath"]
            == environment(pod["containers"][0])["CERTIFICATES"]
        )
        assert pod["restartPolicy"] == "Never"


@pytest.fixture
def notes(render: Render, tmp_path: Path):
    """Return notes(**values): helm's notes, rendered as a manifest because helm prints notes only with a cluster."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text()
    manifest = 'kind: Notes\nmetadata: {name: notes}\ntext: {{ include "notes" . | toJson }}\n'
    (chart / "templates" / "notes.yaml").write_text(
        '{{ define "notes" }}' + text + "{{ end }}\n" + manifest
    )
    return lambda **values: render(chart, **values)["Notes/notes"]["text"]


def test_notes_show_calls(notes):
    """The notes forward both ports of the Service, escape the model name, and use TLS and the API key if configured."""
    text = notes(config={"MODEL_NAME": "my model/1"}, service={"httpPort": 80})
    assert "port-forward service/demo-open-inference-service 8080:80 8081:8081" in text
    assert "curl http://127.0.0.1:8080/v2/models/my%20model%2F1\n" in text
    assert "helm test demo --namespace default\n" in text
    assert "outside" not in text
    text = notes(tls={"existingSecret": "a"}, apiKeys={"existingSecret": "b"})
    assert "curl --insecure https://127.0.0.1:8080/v2/health/ready\n" in text
    assert (
        'curl --insecure https://127.0.0.1:8080/v2/models/MODEL -H "Authorization: Bearer $API_KEY"\n'
        in text
    )


@pytest.mark.parametrize("way", ["ingress", "grpcIngress", "httpRoute", "grpcRoute"])
def test_notes_mention_tls_of_pods(notes, way: str):
    """If the pods use TLS, the notes for every Ingress and route mention it."""
    more = {"parentRefs": GATEWAY} if way.endswith("Route") else {"tls": [{"secretName": "front"}]}
    text = notes(
        **TLS,
        **{
            way: {**ENABLED, **more, ("hosts" if "ress" in way else "hostnames"): ["a.example.com"]}
        },
    )
    assert "The pods accept only TLS" in text
    assert "BackendTLSPolicy" in text
    assert "without TLS" not in text
    assert "The pods accept only TLS" not in notes(**TLS)


def test_notes_list_external_addresses(notes):
    """The notes list the hosts of every Ingress and route, and the address for client-side load balancing."""
    text = notes(
        service={"headless": True},
        ingress={**ENABLED, "hosts": ["a.example.com"], "tls": [{"hosts": ["a.example.com"]}]},
        grpcIngress={**ENABLED, "hosts": ["b.example.com"]},
        httpRoute={**ENABLED, "parentRefs": GATEWAY, "hostnames": ["c.example.com"]},
        grpcRoute={**ENABLED, "parentRefs": GATEWAY, "hostnames": ["d.example.com"]},
    )
    assert "dns:///demo-open-inference-service-headless.default.svc:8081\n" in text
    assert "REST from outside the cluster: https://a.example.com/v2\n" in text
    assert "gRPC from outside the cluster: b.example.com:80 (without TLS)" in text
    assert "BackendTLSPolicy" not in text
    assert "REST through the Gateway: c.example.com\n" in text
    assert "gRPC through the Gateway: d.example.com\n" in text
    assert "\n\n\n" not in text
    assert "anary" not in text


def test_notes_show_canary(notes):
    """The notes have the canary's Service, its weight, and the header for testers."""
    canary = {**FEATURES["canary"]["canary"], "header": {}}
    line = (
        "Canary: demo-open-inference-service-canary with 10 % of the requests through the Gateway"
    )
    assert f"{line}\n" in notes(**FEATURES["routes"], canary=canary)
    assert f"{line}, and those with the header x-canary: yes\n" in notes(**FEATURES["canary"])
