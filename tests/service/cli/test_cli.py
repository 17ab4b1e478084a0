"""The command line, as a person and as a script has it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result

from app.cli import COMMANDS, main
from app.cli.common import Failure
from app.cli.service import Service
from tests.service.processes import Running, free_ports, gunicorn
from tests.service.projects import ROOT, command, edit, make_project

KEY = "a-key-of-the-tests"
REQUEST = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certificate for a name that is not this machine's address, its key, who signed it, and API keys."""
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


def run(*arguments: str, program: str = "adder", **environment: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, arguments, prog_name=program, env=environment)


def test_info(running: Running) -> None:
    """A service is told as a table, and to a machine as JSON; how many workers it has is in its metrics."""
    told = run("info", "--url", f"http://{running.http}")
    assert (told.exit_code, told.output.splitlines()[0]) == (0, "adder 1 is ready")
    assert re.search(r"^x +FP32 +\[-1\]$", told.output, re.MULTILINE)
    told = run("info", "--json", HOST="127.0.0.1", HTTP_PORT=str(running.http_port), MODEL_NAME="mine")
    assert told.stderr == f'note: the model at http://{running.http} is "adder", and this project\'s is "mine"\n'
    found = json.loads(told.stdout)
    assert found["ready"] is True
    assert found["workers_ready"] == 2
    assert found["model"]["outputs"] == [{"name": "y", "shape": [-1], "datatype": "FP32"}]


@pytest.mark.parametrize("words", [["bench", "--seconds", "0.1"], ["infer", "-", "--format", "csv"]])
def test_another_projects_service_is_not_taken_for_the_own(running: Running, words: list[str]) -> None:
    """It has this project's port, and another model; who names that, or the address, gets it."""
    here = {"HOST": "127.0.0.1", "HTTP_PORT": str(running.http_port), "MODEL_NAME": "mine"}
    told = run(*words, **here)
    assert (told.exit_code, told.stdout) == (1, "")
    assert 'is "adder", and this project\'s is "mine": --model adder if that is meant' in told.stderr
    for meant in ["--model", "adder"], ["--url", f"http://{running.http}"], ["--grpc", running.grpc]:
        assert "this project's" not in run(*words, *meant, **here).stderr


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (
            ["info", "--url", "http://127.0.0.1:{free}/v2"],
            3,
            "no answer from http://127.0.0.1:{free}: Connection refused",
        ),
        (["info", "--url", "http://{http}", "--model", "other"], 1, "the service answers 404: no model"),
        (["info", "--url", "127.0.0.1:8080"], 2, "'127.0.0.1:8080' is no address"),
        (["info", "--key", "clé"], 2, "a key has letters, digits and signs of ASCII only"),
        (["info", "--nonsense"], 2, "No such option"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["serve", "--http-port", "0"], 2, "'--http-port': '0': expected a whole number from 1 to 65535"),
        (["serve", "nonsense"], 2, "unexpected 'nonsense'; what is for gunicorn comes after --"),
        (["info", "--url", "https://{http}"], 3, "it does not speak TLS; http://HOST:PORT asks without"),
        (["completion", "bash"], 1, "a shell completes a command"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(running: Running, arguments: list[str], status: int, line: str) -> None:
    """On standard error, with a status that a script can tell apart."""
    names = {"http": running.http, "free": free_ports(1)[0]}
    told = run(*(each.format(**names) for each in arguments), program="python -m app")
    assert (told.exit_code, told.stdout) == (status, "")
    assert re.fullmatch(rf"Error: .*{re.escape(line.format(**names))}.*\n", told.stderr)


def test_a_setting_that_will_not_do_is_told(project: Path) -> None:
    """The status is the service's own."""
    told = run("info", HTTP_PORT="x")
    assert (told.exit_code, told.stderr) == (1, "Error: HTTP_PORT='x': expected a whole number from 1 to 65535\n")


def test_a_service_with_tls_and_keys(project: Path, files: dict[str, Path]) -> None:
    """On its own machine a service is known by its certificate; from elsewhere by who signed it, and its name."""
    own = {"TLS_CERT": files["cert"], "TLS_KEY": files["key"], "API_KEYS_FILE": files["keys"]}

    def answers(service: Running) -> bool:
        return command("info", HTTP_PORT=service.http_port, API_KEY=KEY, **own).returncode == 0

    with gunicorn(project, is_ready=answers, WORKERS=1, **own) as service:
        assert "401: an API key is needed" in command("info", HTTP_PORT=service.http_port, **own).stderr
        url = f"https://{service.http}"
        assert "who signed it" in command("info", "--url", url, "--key", KEY).stderr
        assert "; https://HOST:PORT" in command("info", "--url", f"http://{service.http}", "--key", KEY).stderr
        assert "IP address mismatch" in command("info", "--url", url, "--cacert", str(files["ca"])).stderr
        asking = Service(url, f"{service.grpc}", key=KEY, pinned=files["cert"])
        assert asking.model_name() == "adder"
        for address, said in (
            (f"grpcs://{service.grpc}", "--cacert FILE has who"),
            (service.grpc, "grpcs://HOST:PORT"),
        ):
            told = command("infer", "-", "--format", "csv", "--url", "http://127.0.0.1:1", "--grpc", address)
            assert (told.returncode, told.stderr.count("Error: no answer from")) == (3, 1)
            assert said in told.stderr
        with pytest.raises(Failure, match="UNAUTHENTICATED"):
            Service(url, f"{service.grpc}", pinned=files["cert"]).model_name()


def test_check(project: Path, tmp_path: Path) -> None:
    """The model is called by EXAMPLE, or a request that is given, in each form; what comes back is shown."""
    told = command("check", folder=project)
    assert told.returncode == 0, told.stderr
    assert re.search(r"^y +FP32 +\[2\] +1\.5, 2\.5$", told.stdout, re.MULTILINE)
    assert told.stdout.endswith("ok: METADATA declares what came back, for EXAMPLE\n")
    found = json.loads(command("check", "--json", "--input", "-", folder=project, stdin=json.dumps(REQUEST)).stdout)
    assert found["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [3], "values": ["1.5", "2.5", "3.5"]}]
    assert {"load()", "REST, JSON", "REST, binary", "gRPC"} < found["seconds"].keys()


def test_check_warns_of_other_calls(tmp_path: Path) -> None:
    """A model that fails without rows, or without what it has a default for, is told of, and what load() warns of."""
    project = make_project(tmp_path)
    edit(project, "x + model", "x + model + 0 / len(x) * len(k)")
    edit(project, "x: np.ndarray", "x: np.ndarray, k: np.ndarray = 5")
    edit(project, "[-1])],\n    outputs", '[-1]), MetadataTensor("k", "INT64", [1])],\n    outputs')
    edit(project, '"x": [1.0, 2.0]', '"x": [1.0, 2.0], "k": [5]')
    edit(project, "    return float(", "    __import__('warnings').warn('of old')\n    return float(")
    told = command("check", folder=project)
    assert told.returncode == 0, told.stderr
    for said in (
        "a call with no rows, which METADATA allows, fails: app/predict.py, line 24: ZeroDivisionError",
        'a call without "k", for which predict() has a default, fails: app/predict.py, line 24: TypeError',
        "load(): UserWarning: of old",
    ):
        assert f"warning: {said}" in told.stdout


def test_check_counts_rows(tmp_path: Path) -> None:
    """Rows that are not those that were sent are told of; not where METADATA declares that, or the inputs have none."""

    def warnings() -> list[str]:
        told = command("check", "--json", "--form", "json", folder=project)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)["warnings"]

    project = make_project(tmp_path)
    edit(project, "x + model", "x[:2] if len(x) else np.zeros(2)")
    assert re.match('output "y": predict\\(\\) returned 2 rows for 4; ', "|".join(warnings()))
    edit(project, '"y", "FP32", [-1]', '"y", "FP32", [2]')
    assert warnings() == []
    edit(project, '"y", "FP32", [2]', '"y", "FP32", [-1]')
    edit(project, "x: np.ndarray", "x: np.ndarray, k: np.ndarray")
    edit(project, '"x", "FP32", [-1])', '"x", "FP32", [-1]), MetadataTensor("k", "FP32", [-1])')
    edit(project, '"x": [1.0, 2.0]', '"x": [1.0, 2.0], "k": [5.0]')
    assert warnings() == []


def test_check_says_what_helps_where_text_is_missing(tmp_path: Path) -> None:
    """JSON alone has null among texts; where EXAMPLE has it, the other forms are no fault of predict()."""
    project = make_project(tmp_path)
    edit(project, '"x", "FP32", [-1])', '"x", "FP32", [-1]), MetadataTensor("k", "BYTES", [-1], content_type="str")')
    edit(project, "x: np.ndarray", "x: np.ndarray, k: list[str]")
    edit(project, '"x": [1.0, 2.0]', '"x": [1.0, 2.0], "k": [None, "a"]')
    told = command("check", folder=project)
    assert told.returncode == 1
    assert told.stderr.endswith("leave it out of EXAMPLE, or try --form json alone\n")
    assert command("check", "--form", "json", folder=project).returncode == 0


def test_check_blames_a_request_that_was_made_up(tmp_path: Path) -> None:
    """Where predict() fails on it, and not where METADATA does not declare what came back."""
    project = make_project(tmp_path)
    edit(project, 'EXAMPLE = {"x": [1.0, 2.0]}', "")
    edit(project, "x + model", "np.zeros(1)[x.astype(int)]")  # the warm-up's zeros will do
    told = command("check", folder=project).stderr
    assert re.search("IndexError: .*; the request was made up: write an EXAMPLE", told)
    edit(project, "np.zeros(1)[x.astype(int)]", "x if not x.any() else x[:, None]")
    told = command("check", folder=project).stderr
    assert "shape: expected [-1], got [1,1]" in told
    assert "made up" not in told


@pytest.mark.parametrize(
    ("old", "new", "status", "line"),
    [
        ('return {"y"', 'return {{"y"', 4, "app/predict.py, line 23: SyntaxError: '{' was never closed"),
        ("model, x", "model, z", 4, 'line 22: predict() and METADATA disagree: predict() takes "z"'),
        (
            "import numpy as np",
            "import numpy as np\nimport nosuch",
            4,
            "line 4: ModuleNotFoundError: No module named 'nosuch'",
        ),
        ("term.txt", "none.txt", 3, "load(): app/predict.py, line 19: FileNotFoundError"),
        ("return float(", "raise __import__('app.errors').errors.SetupError('none')\n    float(", 3, "load(): "),
        ("x + model", "x[:, None]", 3, 'output "y": predict() returned what METADATA does not declare: shape'),
        ("x + model", "x.nosuch", 3, "line 23: AttributeError: 'numpy.ndarray' object has no attribute 'nosuch'"),
    ],
)
def test_check_tells_where_the_fault_is(tmp_path: Path, old: str, new: str, status: int, line: str) -> None:
    """With the line of predict.py, and whether the service would start."""
    project = make_project(tmp_path)
    edit(project, old, new)
    told = command("check", folder=project)
    assert (told.returncode, told.stdout) == (status, "")
    assert re.fullmatch(rf"Error: .*{re.escape(line)}.*\n", told.stderr), told.stderr


@pytest.mark.parametrize(("old", "new"), [("x + model", "x.nosuch"), ("    return float(", "    return nosuch(")])
def test_check_tells_what_load_warned_of(tmp_path: Path, old: str, new: str) -> None:
    """Where load() or a later step fails, since that may be why."""
    project = make_project(tmp_path)
    edit(project, old, new)
    edit(project, "def load():", "def load():\n    __import__('warnings').warn('made by another version')")
    told = command("check", folder=project)
    assert told.stderr.startswith("warning: load(): UserWarning: made by another version\nError: ")


def test_check_warns_of_a_package_that_is_not_declared(tmp_path: Path) -> None:
    """A package that is here by chance, and would not be in the image."""
    project = make_project(tmp_path)
    edit(project, "import numpy as np", "import os\nimport numpy as np\nimport pytest, werkzeug")
    told = command("check", "--form", "json", folder=project)
    assert "warning: app/predict.py, line 5: imports pytest, which nothing in install_requires" in told.stdout
    assert told.stdout.count("warning") == 1


def test_doctor(project: Path) -> None:
    """What is in order is told, and what is set; a port that another has is an error, with who has it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        ports = {"HTTP_PORT": free_ports(1)[0], "GRPC_PORT": other.getsockname()[1]}
        slips = {"API_KEY_FILE": "keys.txt", "MAX_BATCH": "8"}
        told = command("doctor", "--json", folder=project, HOST="127.0.0.1", **slips, **ports)
    assert (told.returncode, told.stderr) == (1, "Error: the service cannot run here: GRPC_PORT\n")
    found = [(each["what"], each["state"]) for each in json.loads(told.stdout)]
    assert {("numpy", "ok"), ("protos", "ok"), ("HTTP_PORT", "ok"), ("GRPC_PORT", "error")} < {*found}
    assert ("API_KEY_FILE", "warning") in found
    assert found.count(("MAX_BATCH", "warning")) == 2  # it may be meant for either
    assert f"(process {os.getpid()})" in json.loads(told.stdout)[-1]["text"]


def test_doctor_knows_the_service_itself(project: Path, running: Running) -> None:
    """Its ports are taken, and that is in order; packages that setup.cfg does not want are not."""
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": running.http_port, "GRPC_PORT": running.grpc_port}
    setup = (project / "setup.cfg").read_text()
    try:
        (project / "setup.cfg").write_text(setup.replace("flask>=", "nosuchpackage\n    flask>=1000,>="))
        told = command("doctor", folder=project, **settings)
    finally:
        (project / "setup.cfg").write_text(setup)
    assert told.stderr == "Error: the service cannot run here: nosuchpackage, flask\n"
    assert told.stdout.count(": the service runs") == 2


def test_doctor_knows_others(project: Path, running: Running) -> None:
    """Another service, or a port beside the own, is an error; and what is to be ended is the master."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        ports = {"HTTP_PORT": running.http_port, "GRPC_PORT": other.getsockname()[1]}
        told = command("doctor", folder=project, HOST="127.0.0.1", **ports)
        assert told.stderr == "Error: the service cannot run here: GRPC_PORT\n"
        assert told.stdout.count(": the service runs") == 1
    told = command("doctor", "--json", HOST="127.0.0.1", HTTP_PORT=running.http_port, GRPC_PORT=running.grpc_port)
    for each in json.loads(told.stdout)[-2:]:
        assert each["state"] == "error"
        assert f"(process {running.process.pid})" in each["text"]


def test_what_ends_any_command() -> None:
    """A full disk behind stdout, and an interrupt wherever it comes, are told in a line, too."""
    python = [sys.executable, "-m", "app"]
    with open("/dev/full", "w") as full:
        told = subprocess.run([*python, "doctor"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (told.returncode, told.stderr) == (1, "Error: stdout: No space left on device\n")
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        command = [*python, "info", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}"]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        with process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60) == (None, "Error: interrupted\n")
    assert process.returncode == 130


def test_help_has_examples() -> None:
    """Each command has some, by the name that the program was called by."""
    assert "Exit status:" in run("--help").output
    for name in COMMANDS:
        _, _, examples = run(name, "--help").output.partition("Examples:")
        assert f"adder {name}" in examples or f"NAME {name}" in examples


def test_help_is_quick() -> None:
    """It waits for none of the large packages; neither does a shell that completes."""
    code = "import sys; from app.cli import main; main(['--help'], standalone_mode=False); "
    code += "sys.exit(bool({'numpy', 'pandas', 'grpc', 'flask'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_completion() -> None:
    """A shell gets its script, which asks the command itself."""
    assert "_ADDER_COMPLETE=bash_complete" in run("completion", "bash").output
    words = {"_ADDER_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "adder do"}
    assert run(**words).output == "plain,doctor\n"
