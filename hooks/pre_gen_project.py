"""Checks the answers before a file is written; says what is wrong with each, and what would be right."""

import json
import re
import sys

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
RULES = {
    "project_slug": (
        r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?",
        "a letter, then lower-case letters, digits and hyphens, at most 50 in all, such as iris-service",
    ),
    "model_name": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such as iris",
    ),
    "model_version": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such as 1 or v1.2",
    ),
    "image_repository": (
        r"([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*",
        "a repository's lower-case name without a tag, such as ghcr.io/you/iris-service",
    ),
    # setup.cfg reads these: one line each, and no `file:` or `attr:` that it would follow.
    "project_name": (r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of text"),
    "description": (r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,500}", "one line of text, no `file:`"),
    "author": (r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}", "one line of text, no `file:`"),
}

# pip would take the project for the package that it needs.
TAKEN = {
    *(
        "apispec",
        "backports-datetime-fromisoformat",
        "click",
        "flask",
        "flask-swagger-ui",
        "grpcio",
        "grpcio-health-checking",
        "grpcio-reflection",
        "gunicorn",
        "marshmallow",
        "numpy",
    ),
    *("orjson", "packaging", "pandas", "prometheus-client", "protobuf", "pysimdjson"),
    *("lightgbm", "mlflow-skinny", "onnxruntime", "scikit-learn", "torch", "transformers", "xgboost", "xgboost-cpu"),
    *(
        "hypothesis",
        "matplotlib",
        "mypy",
        "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry-sdk",
        "pillow",
        "pyarrow",
        "pytest",
        "pytest-timeout",
        "pytest-xdist",
        "ruff",
        "trustme",
    ),
}

faults = [
    f"{name} {ANSWERS[name]!r} will not do: expected {wanted}"
    for name, (pattern, wanted) in RULES.items()
    if not re.fullmatch(pattern, ANSWERS[name])
]
if ANSWERS["project_slug"] in TAKEN:
    faults.append(
        f"project_slug {ANSWERS['project_slug']!r} will not do: expected a name that is no package the project needs"
    )
if faults:
    sys.exit("\n".join(faults))
