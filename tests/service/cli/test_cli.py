"""All commands except infer and bench."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import trustme

from app.version import __version__
from tests.kit.processes import Running, free_ports, gunicorn
from tests.kit.projects import command, edit, make_project
from tests.service.cli.service_command import run

KEY = "a-key-of-the-tests"
REQUEST = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Create a certificate for another host name, its key, its CA certificate and a file of API keys."""
    folder, authority = tmp_path_factory.mktemp("files"), trustme.CA()
    issued = authority.issue_cert("service.example.org")
    paths = {name: folder / name for name in ("cert", "key", "ca", "keys")}
    issued.cert_chain_pems[0].write_to_path(paths["cert"])
    issued.private_key_pem.write_to_path(paths["key"])
    authority.cert_pem.write_to_path(paths["ca"])
    paths["keys"].write_text(KEY)
    return paths


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def running(project: Path) -> Iterator[Running]:
    with gunicorn(project, WORKERS=2) as service:
        yield service


def test_info(running: Running) -> None:
    """info prints the model and its state as a table or as JSON. The settings locate a local service."""
    done = run("info", "--url", f"http://{running.http_address}")
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "adder 1 is ready")
    assert re.search(r"^x +FP32 +\[-1\]$", done.output, re.MULTILINE)
    description = json.loads(
        run("info", "--json", HOST="127.0.0.1", HTTP_PORT=str(running.http_port)).stdout
    )
    assert description["ready"] is True
    assert description["model"]["outputs"] == [{"name": "y", "shape": [-1], "datatype": "FP32"}]


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (
            ["info", "--url", "http://127.0.0.1:{free}/v2"],
            3,
            "No response from http://127.0.0.1:{free}: Connection refused",
        ),
        (["info", "--url", "http://127.0.0.1:65536"], 3, "Port out of range"),
        (
            ["info", "--url", "http://{http}", "--model", "other"],
            1,
            "The service responded with 404: ",
        ),
        (
            ["info", "--url", "127.0.0.1:8080"],
            2,
            "Invalid --url. Expected http://HOST:PORT or https://HOST:PORT.",
        ),
        (
            ["info", "--url", "grpc://{free}"],
            2,
            "Invalid --url. Expected http://HOST:PORT or https://HOST:PORT.",
        ),
        (
            ["info", "--api-key", "clé"],
            2,
            "Invalid --api-key. Expected printable ASCII characters.",
        ),
        (["info", "--nonsense"], 2, "No such option"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (
            ["serve", "--http-port", "0"],
            1,
            "HTTP_PORT: invalid value. Expected a whole number from 1 to 65535, got '0'.",
        ),
        (
            ["serve", "nonsense"],
            2,
            "Unexpected argument 'nonsense'. Arguments for gunicorn follow --.",
        ),
        (["info", "--url", "https://{http}"], 3, "No response from https://{http}: [SSL"),
    ],
)
def test_errors_are_one_line(
    running: Running, arguments: list[str], status: int, line: str
) -> None:
    """An error is one line on standard error, and the exit status shows its kind."""
    names = {"http": running.http_address, "free": free_ports(1)[0]}
    done = run(*(argument.format(**names) for argument in arguments), program="python -m app")
    assert (done.exit_code, done.stdout) == (status, "")
    assert re.fullmatch(rf"Error: .*{re.escape(line.format(**names))}.*\n", done.stderr)


def test_reports_invalid_settings(project: Path) -> None:
    """An invalid setting has the same error and exit status as in the service."""
    done = run("info", HTTP_PORT="x")
    assert (done.exit_code, done.stderr) == (
        1,
        "Error: HTTP_PORT: invalid value. Expected a whole number from 1 to 65535, got 'x'.\n",
    )


def test_info_with_tls_and_api_keys(project: Path, files: dict[str, Path]) -> None:
    """The certificate of a local service may have any host name. With --url, the client verifies it."""
    settings = {
        "TLS_CERT_FILE": files["cert"],
        "TLS_KEY_FILE": files["key"],
        "API_KEYS_FILE": files["keys"],
    }

    def is_responding(service: Running) -> bool:
        return command("info", HTTP_PORT=service.http_port, API_KEY=KEY, **settings).returncode == 0

    with gunicorn(project, is_ready=is_responding, WORKERS=1, **settings) as service:
        assert "401: " in command("info", HTTP_PORT=service.http_port, **settings).stderr
        url = f"https://{service.http_address}"
        for options, said in (
            (["--url", url], "local issuer"),
            (["--url", f"http://{service.http_address}"], "No response"),
            (["--url", url, "--cacert", str(files["ca"])], "IP address mismatch"),
        ):
            done = command("info", *options, "--api-key", KEY)
            assert (done.returncode, said in done.stderr) == (3, True), done.stderr


def test_check(project: Path, tmp_path: Path) -> None:
    """check calls the model with EXAMPLE or a given request on every transport, and prints the outputs."""
    done = command("check", folder=project)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^y +FP32 +\[2\] +1\.5, 2\.5$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("ok: the outputs for EXAMPLE match METADATA\n")
    report = json.loads(
        command("check", "--json", "--input", "-", folder=project, stdin=json.dumps(REQUEST)).stdout
    )
    assert report["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [3], "values": ["1.5", "2.5", "3.5"]}
    ]
    assert {"load()", "rest-json", "rest-binary", "grpc"} < report["seconds"].keys()


def test_check_reports_text_without_a_binary_form(tmp_path: Path) -> None:
    """check reports that only JSON can carry null among the texts of EXAMPLE."""
    project = make_project(tmp_path)
    edit(
        project,
        '"x", "FP32", [-1])',
        '"x", "FP32", [-1]), MetadataTensor("k", "BYTES", [-1], content_type="str")',
    )
    edit(project, "x: np.ndarray", "x: np.ndarray, k: list[str]")
    edit(project, '"x": [1.0, 2.0]', '"x": [1.0, 2.0], "k": [None, "a"]')
    done = command("check", folder=project)
    assert done.returncode == 1
    assert "null has no binary form. Use JSON" in done.stderr
    assert command("check", "--transport", "rest-json", folder=project).returncode == 0


def test_check_sends_each_form_of_bytes_and_gaps(tmp_path: Path) -> None:
    """C12, C13: check sends bytes and missing values in the form of each transport. It suggests `bytes` for bytes."""
    project = make_project(tmp_path)
    kinds = {"one": None, "two": "base64", "three": "bytes", "four": "str"}
    tensors = [f'MetadataTensor("{name}", "BYTES", [-1], {kind!r})' for name, kind in kinds.items()]
    tensors.append('MetadataTensor("gap", "BYTES", [-1], "str", missing="")')
    edit(project, '"x", "FP32", [-1])', f'"x", "FP32", [-1]), {", ".join(tensors)}')
    declared = ", ".join(f"{name}: list[bytes]" for name in kinds)
    edit(project, "x: np.ndarray", f"x: np.ndarray, {declared}, gap: list[str]")
    example = {"one": ["a"], "two": ["YQ=="], "three": [b"\xff"], "four": ["a"], "gap": [None, "a"]}
    edit(project, '"x": [1.0, 2.0]', f'"x": [1.0, 2.0], **{example!r}')
    edit(
        project,
        "    return {",
        '    assert (two, three, gap) == ([b"a"], [b"\\xff"], [None, "a"])\n    return {',
    )
    done = command("check", "--json", folder=project)
    assert done.returncode == 0, done.stderr
    reason = 'declare content_type="bytes", so that JSON clients can send base64 text and other clients bytes'
    assert json.loads(done.stdout)["warnings"] == [
        f'input "{name}": {reason}' for name in ("one", "two")
    ]


def test_check_mentions_a_generated_request(tmp_path: Path) -> None:
    """Without EXAMPLE, the error mentions that the request was generated, because its values may cause the error."""
    project = make_project(tmp_path)
    edit(project, 'EXAMPLE = {"x": [1.0, 2.0]}', "")
    edit(project, "x + model", "np.zeros(1)[x.astype(int)]")  # 1 is out of range
    done = command("check", folder=project).stderr
    assert re.search(
        "IndexError: .*. This was a request generated from METADATA. Write an EXAMPLE", done
    )


@pytest.mark.parametrize(
    ("old", "new", "status", "line"),
    [
        (
            'return {"y"',
            'return {{"y"',
            4,
            "app/predict.py, line 23: SyntaxError: '{' was never closed",
        ),
        ("model, x", "model, z", 4, 'line 22: predict() does not match METADATA. Expected "x"'),
        (
            "import numpy as np",
            "import numpy as np\nimport nosuch",
            4,
            "line 4: ModuleNotFoundError: No module named 'nosuch'",
        ),
        ("term.txt", "none.txt", 3, "load(): app/predict.py, line 19: FileNotFoundError"),
        (
            "return float(",
            "raise __import__('app.protocol.errors').protocol.errors.ConfigurationError('none')\n    float(",
            3,
            "load(): ",
        ),
        (
            "x + model",
            "x[:, None]",
            3,
            'Output "y": predict() returned a result that does not match METADATA: invalid shape',
        ),
        (
            "x + model",
            "x.nosuch",
            3,
            "line 23: AttributeError: 'numpy.ndarray' object has no attribute 'nosuch'",
        ),
    ],
)
def test_check_shows_the_line_of_an_error(
    tmp_path: Path, old: str, new: str, status: int, line: str
) -> None:
    """The error has the line of predict.py, and the exit status shows whether the service would start."""
    project = make_project(tmp_path)
    edit(project, old, new)
    done = command("check", folder=project)
    assert (done.returncode, done.stdout) == (status, "")
    assert re.fullmatch(rf"Error: .*{re.escape(line)}.*\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        (
            "nosuch",
            ". Add the package that contains it to install_requires in setup.cfg, and run make serve",
        ),
        ("numpy.nosuch", ""),
    ],
)
def test_check_suggests_installing_a_missing_module(
    tmp_path: Path, module: str, remedy: str
) -> None:
    """The error suggests installing the package of a missing module, unless the package itself is installed."""
    project = make_project(tmp_path)
    edit(project, "import numpy as np", f"import numpy as np\nimport {module}")
    setup = project / "setup.cfg"
    setup.write_text(
        setup.read_text().replace("install_requires =\n", "install_requires =\n    nosuch\n")
    )
    assert command("check", folder=project).stderr.endswith(f"No module named '{module}'{remedy}\n")


def test_check_shows_the_traceback(tmp_path: Path) -> None:
    """--traceback prints the traceback before the error. Warnings of load() appear in Python's format."""
    project = make_project(tmp_path)
    edit(project, "x + model", "x.nosuch")
    edit(
        project,
        "def load():",
        "def load():\n    __import__('warnings').warn('made by another version')",
    )
    done = command("check", "--traceback", folder=project)
    assert done.returncode == 3
    assert "UserWarning: made by another version" in done.stderr
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: warm-up: app/predict.py, line ")


def test_check_warns_about_an_unlisted_package(tmp_path: Path) -> None:
    """check warns about a package that predict.py uses and setup.cfg does not list, because an image would lack it."""
    project = make_project(tmp_path)
    edit(
        project,
        "import numpy as np",
        "import os\nimport numpy as np\nimport pytest\nfrom click import echo",
    )
    done = command("check", "--transport", "rest-json", folder=project)
    assert (
        "warning: predict.py uses pytest, which install_requires in setup.cfg does not list"
        in done.stdout
    )
    assert done.stdout.count("warning") == 1
    setup = project / "setup.cfg"
    setup.write_text(
        setup.read_text().replace(
            "install_requires =\n", "install_requires =\n    PyTest[a] @ file:///a%20b.whl\n"
        )
    )
    done = command("check", "--transport", "rest-json", folder=project)
    assert (done.returncode, done.stdout.count("warning")) == (0, 0)


def test_version(project: Path) -> None:
    """--version prints the versions and the names of settings for a bug report, but no values."""
    done = command(
        "--version", folder=project, WORKERS="x", API_KEYS_FILE="secret.txt", LOG_FORMAT=""
    )

    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert rows["open-inference-service"] == __version__
    assert rows["Python"] == platform.python_version()
    for name in ("gunicorn", "grpcio", "numpy", "scikit-learn"):
        assert rows[name] == version(name)
    assert rows["settings"] == "WORKERS, API_KEYS_FILE"
    assert "template" not in rows
    assert "secret" not in done.stdout


def test_version_of_template(tmp_path: Path) -> None:
    """--version prints the commit of the template that a project records, but not its address."""
    project = make_project(tmp_path)
    record = {"template": "https://user:password@example.org/template", "commit": "0123abc"}
    (project / ".cruft.json").write_text(json.dumps(record))

    done = command("--version", folder=project)

    rows = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert rows["template"] == "0123abc"
    assert "example.org" not in done.stdout
