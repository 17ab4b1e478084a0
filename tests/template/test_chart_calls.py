"""deploy/helm: the pods of `helm test` ask a real service, and the notes tell how to."""

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

from tests.service.processes import Running, free_ports, gunicorn, started, wait_for
from tests.service.runtime.test_lifecycle import is_live

from .chart_values import ENABLED, GATEWAY, KEYS, TLS, Values
from .helm import ROOT, missing
from .manifests import CHART, READY, Render, environment

NAME = "demo-open-inference-service.default.svc"
KINDS = ("rest", "grpc")


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a Secret of TLS is mounted as: the certificate for the Service's name, its key, and the authority's own."""
    folder, authority = tmp_path_factory.mktemp("secret"), trustme.CA()
    issued = authority.issue_cert(NAME, "127.0.0.1")
    (folder / "tls.crt").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(folder / "tls.key")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    return folder


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    """The service at every address of this machine."""
    with gunicorn(ROOT, WORKERS=1, HOST="::") as service:
        yield service


@pytest.fixture(scope="module")
def guarded(secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service behind TLS and keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("a key of 16 characters\n".replace(" ", "-"))
    settings = {"TLS_CERT_FILE": secret / "tls.crt", "TLS_KEY_FILE": secret / "tls.key", "API_KEYS_FILE": keys}
    settings |= dict(zip(("HTTP_PORT", "GRPC_PORT"), free_ports(2), strict=True))
    settings |= {"HOST": "127.0.0.1", "WORKERS": 1, "SHUTDOWN_DELAY_SECONDS": 0}

    def ready(service: Running) -> bool:
        return "is ready" in service.log()

    with started([sys.executable, "-m", "gunicorn", "app:create_app()"], ROOT, settings, ready) as service:
        yield service


def ask(render: Render, kind: str, address: str, values: Values, **other: object) -> subprocess.CompletedProcess[str]:
    """Runs what the pod of `helm test` runs, with its variables, but for where the service is, and `other` ones."""
    (container,) = render(**values)[f"Pod/test-{kind}"]["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    env = {**os.environ, **environment(container), "ADDRESS": address}
    env |= {name: str(value) for name, value in other.items()}
    command = [sys.executable, "-c", *container["args"]]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


def address_of(service: Running, kind: str) -> str:
    return service.http if kind == "rest" else service.grpc


@pytest.mark.parametrize("kind", KINDS)
def test_helm_test_finds_the_service(render: Render, plain: Running, kind: str):
    """The pod ends well where the model is ready, and badly where nothing listens."""
    done = ask(render, kind, address_of(plain, kind), {})
    assert done.returncode == 0, done.stderr
    (port,) = free_ports(1)
    assert ask(render, kind, f"127.0.0.1:{port}", {}).returncode != 0


def test_pods_with_ipv6_addresses_are_reached(plain: Running):
    """At HOST :: both protocols answer by IPv6, as by IPv4 above."""
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
def test_helm_test_goes_through_tls(
    render: Render, guarded: Running, secret: Path, tmp_path: Path, kind: str, files: tuple[str, ...]
):
    """It trusts the Secret's certificates, with or without their authority's, needs no key, and minds the name."""
    for file in files:
        shutil.copy(secret / file, tmp_path)
    values, address = {**TLS, **KEYS}, address_of(guarded, kind)
    done = ask(render, kind, address, values, CERTIFICATES=tmp_path)
    assert done.returncode == 0, done.stderr
    other = {"tls": {"existingSecret": "certificate", "serverName": "other.example.com"}}
    assert ask(render, kind, address, other, CERTIFICATES=tmp_path).returncode != 0
    assert ask(render, kind, address, {}).returncode != 0


def test_helm_test_sees_that_no_model_is_ready(render: Render, tmp_path: Path):
    """A service that answers, and whose load() has not ended, does not pass."""
    with gunicorn(ROOT, "tests.service.apps:loading()", is_ready=is_live, WORKERS=1, FOLDER=tmp_path) as service:
        for kind in KINDS:
            done = ask(render, kind, address_of(service, kind), {})
            assert done.returncode != 0
            assert ("503" if kind == "rest" else "NOT_SERVING") in done.stderr
        (tmp_path / "loaded").touch()
        wait_for(service.ready)


def test_helm_test_sees_certificates_alone(render: Render):
    """The pods of `helm test` are shown no private key, and start where the Secret has no authority's certificate."""
    for kind in KINDS:
        pod = render(**TLS)[f"Pod/test-{kind}"]["spec"]
        (volume,) = pod["volumes"]
        assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "ca.crt"]
        assert volume["secret"]["optional"] is True
        assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == environment(pod["containers"][0])["CERTIFICATES"]
        assert pod["restartPolicy"] == "Never"


@pytest.fixture
def notes(render: Render, tmp_path: Path):
    """notes(**values): what helm says behind an installation. It says so to a cluster only; as a manifest, anywhere."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text()
    manifest = 'kind: Notes\nmetadata: {name: notes}\ntext: {{ include "notes" . | toJson }}\n'
    (chart / "templates" / "notes.yaml").write_text('{{ define "notes" }}' + text + "{{ end }}\n" + manifest)
    return lambda **values: render(chart, **values)["Notes/notes"]["text"]


def test_notes_name_the_calls(notes):
    """They open both ports of the right Service, escape the model's name, and ask as TLS and keys demand."""
    text = notes(config={"MODEL_NAME": "my model/1"}, service={"httpPort": 80})
    assert "port-forward service/demo-open-inference-service 8080:80 8081:8081" in text
    assert "curl http://127.0.0.1:8080/v2/models/my%20model%2F1\n" in text
    assert "helm test demo --namespace default\n" in text
    assert "outside" not in text
    text = notes(tls={"existingSecret": "a"}, apiKeys={"existingSecret": "b"})
    assert "curl --insecure https://127.0.0.1:8080/v2/health/ready\n" in text
    assert 'curl --insecure https://127.0.0.1:8080/v2/models/MODEL -H "Authorization: Bearer $API_KEY"\n' in text


@pytest.mark.parametrize("way", ["ingress", "grpcIngress", "httpRoute", "grpcRoute"])
def test_notes_say_that_a_way_must_speak_tls(notes, way: str):
    """Whatever leads to pods that speak TLS alone must be told so."""
    more = {"parentRefs": GATEWAY} if way.endswith("Route") else {"tls": [{"secretName": "front"}]}
    text = notes(**TLS, **{way: {**ENABLED, **more, ("hosts" if "ress" in way else "hostnames"): ["a.example.com"]}})
    assert "The pods speak TLS alone" in text
    assert "BackendTLSPolicy" in text
    assert "without TLS" not in text
    assert "The pods speak TLS alone" not in notes(**TLS)


def test_notes_name_the_ways_from_outside(notes):
    """The hosts of every Ingress and route are told, and what balances by itself."""
    text = notes(
        service={"headless": True},
        ingress={**ENABLED, "hosts": ["a.example.com"], "tls": [{"hosts": ["a.example.com"]}]},
        grpcIngress={**ENABLED, "hosts": ["b.example.com"]},
        httpRoute={**ENABLED, "parentRefs": GATEWAY, "hostnames": ["c.example.com"]},
        grpcRoute={**ENABLED, "parentRefs": GATEWAY, "hostnames": ["d.example.com"]},
    )
    assert "dns:///demo-open-inference-service-headless.default.svc:8081\n" in text
    assert "REST from outside: https://a.example.com/v2\n" in text
    assert "gRPC from outside: b.example.com:80, where the controller serves it without TLS" in text
    assert "BackendTLSPolicy" not in text
    assert "REST from outside, by the Gateway's listener: c.example.com\n" in text
    assert "gRPC from outside, by the Gateway's listener: d.example.com\n" in text
    assert "\n\n\n" not in text
