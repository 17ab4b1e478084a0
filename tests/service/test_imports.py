"""The order of imports between modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# From the bottom to the top: a module imports from lines above its own, or from its own line.
LAYERS = [
    {"app.version"},
    {
        "app.protocol.errors",
        "app.config.resources",
        "app.server.worker_state",
        "app.server.interfaces",
        "app.server.sockets",
        "app.server.threads",
        "app.server.http",
        "app.observability.metric_files",
    },
    {
        "app.protocol.datatypes",
        "app.inference.admission",
        "app.inference.context",
        "app.observability.observer_queue",
        "app.inference.startup_errors",
        "app.config.api_keys",
        "app.config.tls",
        "app.observability.log",
        "app.observability.access_log",
    },
    {"app.config.settings", "app.server.connection", "app.server.response"},
    {
        "app.protocol.binary_tensors",
        "app.protocol.json_tensors",
        "app.runtime.healthcheck",
        "app.server.arbiter",
        "app.server.worker",
    },
    {"app.protocol.http_body"},
    {"app.protocol.types", "app.protocol.fast_json"},
    {"app.codecs.base"},
    {"app.codecs.arrays", "app.codecs.strings"},
    {"app.codecs.datetimes"},
    {"app.codecs.frames"},
    {"app.codecs"},
    {"app.inference.validation", "app.inference.triton", "app.inference.batching", "app.inference.example"},
    {"app.inference.signature"},
    {"app.inference.adapter", "app.predict"},
    {"app.inference.data_plane"},
    {"app.observability.metrics", "app.observability.spans"},
    {"app.observability.tracing"},
    {"app.rest.schemas", "app.rest.body", "app.rest.middleware"},
    {
        "app.rest.routes",
        "grpc_service.messages",
        "grpc_service.wire",
        "grpc_service.pool",
    },
    {"grpc_service.converters"},
    {"grpc_service.servicer", "grpc_service.client"},
    {"grpc_service.guard"},
    {"app.rest.fast_path", "grpc_service.server"},
    {"app.runtime.lifecycle", "app.ui", "app.ui.fields", "app.ui.description"},
    {"app.ui.openapi", "app.ui.page"},
    {"app"},
    {"app.runtime.preload"},
    {"app.runtime.hooks"},
    {"grpc_service.__main__", "grpc_service", "app.testing"},
    {"app.cli.common"},
    {"app.cli.service"},
    {"app.cli.options"},
    {"app.cli.watch"},
    {"app.cli.batch", "app.cli.batch.formats", "app.cli.batch.transports"},
    {"app.cli.batch.files", "app.cli.batch.load"},
    {"app.cli.batch.column_mapping"},
    {"app.cli.batch.job"},
    {"app.cli.batch.infer", "app.cli.batch.bench"},
    {
        "app.cli.serve",
        "app.cli.info",
        "app.cli.check",
        "app.cli.doctor",
        "app.cli.healthcheck",
    },
    {"app.cli"},
    {"app.__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
USERS = LEVEL["app.predict"]  # also for modules that are not listed, which belong to predict.py
FILES = sorted([*ROOT.glob("app/**/*.py"), *ROOT.glob("grpc_service/**/*.py")])


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Return the modules of the project that a file imports, at any place in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & LEVEL.keys() or {node.module}
    return {name for name in found if name.split(".")[0] in ("app", "grpc_service")}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_down_only(path: Path) -> None:
    """A module imports no module of a higher layer, except `app` itself."""
    name = module_name(path)
    above = {each for each in imports(path) - {"app"} if LEVEL.get(each, USERS) > LEVEL.get(name, USERS)}
    assert not above


def test_transports_are_independent() -> None:
    """REST and gRPC do not import each other, only modules of lower layers."""
    for path in FILES:
        name = module_name(path)
        if name.startswith("grpc_service"):
            assert not imports(path) & {
                "app.rest.routes",
                "app.rest.schemas",
                "app.protocol.json_tensors",
                "app.protocol.http_body",
            }
        elif name not in ("app", "app.testing") and not name.startswith("app.cli"):
            assert not {each for each in imports(path) if each.startswith("grpc_service")}


def test_server_is_independent() -> None:
    """app.server imports no other modules of the project, and grpc_service imports only app.server.sockets of it."""
    for path in FILES:
        name, server = module_name(path), {each for each in imports(path) if each.startswith("app.server")}
        if name.startswith("app.server"):
            assert imports(path) == server, path
        if name.startswith("grpc_service"):
            assert server <= {"app.server.sockets"}, path


@pytest.mark.parametrize("module", ["app", "app.config.settings", "grpc_service.__main__"])
def test_numpy_is_imported_after_thread_limits(module: str) -> None:
    """No way to start imports numpy early, because numeric libraries read their number of threads at import."""
    code = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_gunicorn_configuration_imports_little() -> None:
    """gunicorn.conf.py imports no package that must follow the CPU limits, the metrics directory and the log level."""
    late = {"numpy", "prometheus_client", "grpc", "flask"}
    code = f"import runpy, sys; runpy.run_path('gunicorn.conf.py'); print({late} & {{*sys.modules}} or 'none')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "none\n"), done.stderr


def test_version_imports_nothing() -> None:
    """app/version.py has no imports, so that a build can read it without any package."""
    tree = ast.parse((ROOT / "app/version.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_healthcheck_is_cold() -> None:
    """The command that Docker runs every few seconds loads no library of the model and of the servers."""
    late = {"numpy", "prometheus_client", "grpc", "flask", "gunicorn"}
    code = "import sys; from app.cli import main; main(['healthcheck', '--help'], standalone_mode=False); "
    code += f"print({late} & {{*sys.modules}} or 'none')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "none"), done.stderr
