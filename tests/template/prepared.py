"""The files, services and short forms that a page assumes, and how the tests run its commands."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np

from tests.kit.environments import make_clients
from tests.kit.processes import gunicorn, started

from .blocks import read_guide
from .guides import GRPC, REST, Session, local_addresses, port_of
from .listed import LISTED
from .perf_analyzer.tool import install_perf_analyzer

IRIS = '{"inputs": [{"name": "features", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}'
GRPC_IRIS = (
    '{"model_name": "iris", "inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 4], '
    '"contents": {"fp32_contents": [5.1, 3.5, 1.4, 0.2]}}]}'
)
METHOD = "inference.GRPCInferenceService/ModelInfer"
COLUMNS = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
# Short forms of the pages. `infer` calls the model of sizes for images and reviews. It may exit with 1 if rows fail.
FUNCTIONS = {
    "infer": r"""() {
        case "$1" in *.jpg | reviews.csv) port=$SIZES_PORT ;; *) port=$HTTP_PORT ;; esac
        HTTP_PORT=$port python -m app infer "$@" || [[ "$*" == *rows.csv*--batch-size\ 50 || "$*" == *--skip-failed* ]]
    }""",
    "bench": '() { python -m app bench "$@" --seconds 1; }',
}
# The size of each text or image. A missing text is None.
SIZES = """
from app.api import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="sizes",
    version="1",
    platform="python",
    inputs=[MetadataTensor("content", "BYTES", [-1], content_type="str", missing="")],
    outputs=[MetadataTensor("size", "INT64", [-1])],
)


def load():
    return None


def predict(model, content):
    return {"size": [len(each or "") for each in content]}
"""
# The parts of Ray that docs/batch-tools.md uses, with one batch.
RAY = """
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq


class Rows:
    def __init__(self, columns):
        self.columns = columns

    def map_batches(self, function, batch_size, concurrency):
        return Rows(function(self.columns))

    def write_parquet(self, folder):
        table = pa.table(self.columns)
        pq.write_table(table, f"{folder}part.parquet")
        print(f"INFO dataset.py:6884 -- Data sink Parquet finished. {len(table)} rows and 0.1KiB data written.")


def read_parquet(folder):
    table = pq.read_table(folder)
    return Rows({name: table[name].to_numpy() for name in table.column_names})


data = SimpleNamespace(read_parquet=read_parquet)
"""


@contextmanager
def tables(session: Session) -> Iterator[None]:
    """Write the files of docs/batch-tools.md and a package `ray`, and start a model of texts and images."""
    import pandas as pd

    folder = session.folder
    flowers = pd.DataFrame(
        np.random.default_rng(0).uniform(1, 7, (150, 4)).round(1), columns=COLUMNS
    )
    failing = flowers.assign(sepal_length=[*flowers["sepal_length"][:-1], "x"])
    failing.to_csv(folder / "rows.csv", index=False)
    flowers.to_csv(folder / "rows.csv.gz", index=False)
    flowers.to_parquet(folder / "rows.parquet", index=False)
    for name in ("flowers", "labels", "ray"):
        (folder / name).mkdir()
    pd.concat([flowers] * 80).to_parquet(folder / "flowers/rows.parquet", index=False)
    (folder / "ray/__init__.py").write_text(RAY)
    (folder / "reviews.csv").write_text("content\ngood\nNA\nbad\n")
    (folder / "cat.jpg").write_text("not an image, because the model takes only text")
    (folder / "request.json").write_text(IRIS)
    other = shutil.copytree(folder, folder.with_name("sizes"), symlinks=True)
    (other / "app/predict.py").write_text(SIZES)
    with (
        service(session),
        gunicorn(other, python=other / ".venv/bin/python", PYTHONPATH="") as sizes,
    ):
        session.variables |= {"SIZES_PORT": str(sizes.http_port), "BASH_FUNC_pip%%": "() { true; }"}
        yield
    assert [*pd.read_parquet(folder / "labels").columns] == [*COLUMNS, "label"]


@contextmanager
def request_file(session: Session) -> Iterator[None]:
    """Write the files that a page names, and set the variables and addresses of a reader."""
    (session.folder / "houses.csv").write_text("area,district\n60.0,north\n")
    for name in ("request.json", "body.json"):
        (session.folder / name).write_text(IRIS)
    session.variables["API_KEY"] = "0" * 16
    yield


@contextmanager
def perf_analyzer(session: Session) -> Iterator[None]:
    """Install perf_analyzer, and let it measure for a short time."""
    executable, libraries = install_perf_analyzer()
    short = "--measurement-interval 50 --max-trials 3 --stability-percentage 999"
    session.variables["BASH_FUNC_perf_analyzer%%"] = (
        f'() {{ LD_LIBRARY_PATH={libraries} {executable} "$@" {short}; }}'
    )
    with service(session):
        yield


def add_grpcurl(session: Session) -> None:
    """Define grpcurl. It calls the service instead of the gateway of a cluster."""
    command = make_clients().with_name("grpcurl")
    function = f"() {{ '{command}' \"${{@//${{INGRESS-none}}/127.0.0.1:$GRPC_PORT}}\"; }}"
    session.variables["BASH_FUNC_grpcurl%%"] = function


@contextmanager
def grpcurl(session: Session) -> Iterator[None]:
    """Define grpcurl, which a reader has installed."""
    add_grpcurl(session)
    yield


@contextmanager
def service(session: Session) -> Iterator[None]:
    """Run the service, which a page assumes, until the page starts it itself. The page's request is for its model."""
    (session.folder / "body.json").write_text(IRIS)
    command, environment = ["make", "serve"], session.environment()
    session.exit_stack.enter_context(
        started(command, session.folder, environment, lambda it: " is ready" in it.log())
    )
    yield


@contextmanager
def counted_requests(session: Session) -> Iterator[None]:
    """Run the service, and send the requests that docs/monitoring.md counts."""
    (session.folder / "request.json").write_text(IRIS)
    add_grpcurl(session)
    with service(session):
        session.run_commands(
            "for _ in {1..12}; do curl http://127.0.0.1:8080/v2/models/iris/infer -d @request.json; done\n"
            f"for _ in {{1..3}}; do grpcurl -plaintext -d '{GRPC_IRIS}' 127.0.0.1:8081 {METHOD}; done"
        )
        yield


@contextmanager
def git_remote(session: Session) -> Iterator[None]:
    """Give the project a commit, and a repository to push to."""
    for command in (
        "git init --quiet --bare ../remote.git",
        "git init --quiet",
        "git remote add origin ../remote.git",
        "git -c user.name=a -c user.email=a@example.org commit --quiet --allow-empty --message a",
    ):
        session.run_commands(command)
    yield


@contextmanager
def kubernetes(session: Session) -> Iterator[None]:
    """Run the service as if its ports were those of a cluster, with the name of the InferenceService."""
    model = "open-inference-service"
    session.variables |= {"SERVICE_HOST": f"{model}.example.org", "MODEL_NAME": model}
    session.variables["INGRESS"] = session.actual[REST]
    add_grpcurl(session)
    with service(session):
        yield


@contextmanager
def without_configuration(session: Session) -> Iterator[None]:
    """Remove the configuration of the project, which gunicorn would read, and set the address of gunicorn."""
    (session.folder / "gunicorn.conf.py").unlink()
    session.variables["GUNICORN_CMD_ARGS"] = f"--bind {session.actual[REST]}"
    yield


@contextmanager
def git_conflict(session: Session) -> Iterator[None]:
    """Leave a merge with a conflict in the lock file, like an update by cruft. The template's version is taken."""
    lock = session.folder / "deploy/requirements.txt"
    original = lock.read_text()

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(
            ["git", *identity, *words], cwd=session.folder, check=True, capture_output=True
        )

    git("init", "--initial-branch", "base")
    for branch, pin in (("base", ""), ("theirs", "numpy==3"), ("ours", "numpy==2")):
        if branch != "base":
            git("checkout", "-b", branch, "base")
        lock.write_text(original + pin)
        git("add", "deploy/requirements.txt")
        git("commit", "--message", branch)
    subprocess.run(["git", "merge", "theirs"], cwd=session.folder, capture_output=True)
    yield
    assert lock.read_text() == original + "numpy==3"


PREPARED: dict[str, Callable[[Session], AbstractContextManager[None]]] = {
    "README.md": grpcurl,
    "docs/batch-tools.md": tables,
    "docs/command-line.md": request_file,
    "docs/performance.md": perf_analyzer,
    "docs/deployment.md": service,
    "docs/growing.md": service,
    "docs/kserve.md": kubernetes,
    "docs/monitoring.md": counted_requests,
    "docs/page.md": service,
    "docs/releases.md": git_remote,
    "docs/upgrading.md": git_conflict,
    "app/server/README.md": without_configuration,
}
WITHOUT_PIP = {"python3 -m venv tools": "python3 -m venv --without-pip tools"}  # faster
# Texts of a page that only a reader replaces, with one of a test.
REPLACED = {
    "docs/batch-tools.md": {"--seconds 3": "--seconds 1"},
    "docs/command-line.md": {
        "--http-port 9000": "--http-port {rest}",
        "https://iris.example.org": "http://localhost:{rest}",
    },
    "docs/growing.md": {"my-service-headless:8081": "127.0.0.1:{grpc}"},
    "docs/monitoring.md": {"http://collector:4318": "http://127.0.0.1:{rest}"},
    "docs/options.md": {
        "_NAME_COMPLETE": "_OPEN_INFERENCE_SERVICE_COMPLETE",
        "PROJECT/.venv/bin/NAME": "{folder}/.venv/bin/open-inference-service",
    },
    "docs/page.md": {".venv/bin/openapi-spec-validator": "openapi-spec-validator"},
    "docs/tutorial.md": WITHOUT_PIP,
    "docs/upgrading.md": WITHOUT_PIP,
    "README.md": WITHOUT_PIP,
    "docs/performance.md": {
        "-m MODEL": "-m iris --shape features:1,4",
        "MODEL": "iris",
        "--seconds 10": "--seconds 1",
        "--seconds 3": "--seconds 1",
        "10000": "1000",
    },
    "app/server/README.md": {"127.0.0.1:8000": "127.0.0.1:{rest}", "<this repository>": "{folder}"},
}
# The outputs of this page depend on the answers of the project's owner. Those that it does not show are not compared.
ONLY_STATUS = {"{{cookiecutter.project_slug}}/README.md"}


def run_page(page: str, text: str, folder: Path) -> None:
    """Run the files and commands of a page in the directory of a project."""
    actual = local_addresses()
    values = {"rest": port_of(actual[REST]), "grpc": port_of(actual[GRPC]), "folder": folder}
    actual |= {here: there.format(**values) for here, there in REPLACED.get(page, {}).items()}
    session = Session(folder, actual, listed=LISTED.get(page, []), only_status=page in ONLY_STATUS)
    session.variables |= {f"BASH_FUNC_{name}%%": text for name, text in FUNCTIONS.items()}
    with PREPARED.get(page, lambda _: nullcontext())(session):
        session.run(read_guide(text))
