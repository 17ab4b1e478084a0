"""deploy/Dockerfile, without building it. tests/template/test_image.py builds it."""

import json

from app.config.settings import Settings

from .dockerfiles import last_instruction, lint_findings
from .manifests import DEPLOY, Render

DOCKERFILE = DEPLOY / "Dockerfile"


def test_dockerfile_passes_hadolint() -> None:
    """hadolint reports no findings for the Dockerfile."""
    assert lint_findings(DOCKERFILE) == ""


def test_dockerfile_agrees_with_settings_and_chart(render: Render) -> None:
    """The image exposes the service's ports, runs as the chart's user, and starts gunicorn as process 1."""
    context = render()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    ports = f"{Settings().http_port} {Settings().grpc_port}"
    assert last_instruction(DOCKERFILE, "EXPOSE") == ports
    assert last_instruction(DOCKERFILE, "USER") == f"{context['runAsUser']}:{context['runAsGroup']}"
    # The form of a list: gunicorn itself receives SIGTERM, not a shell.
    assert json.loads(last_instruction(DOCKERFILE, "CMD")) == ["gunicorn", "app:create_app()"]
