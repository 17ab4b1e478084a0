"""Validate the answers before cookiecutter writes a file."""

import json
import re
import sys

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
RULES = {
    "project_slug": (
        r"(?!(y|n|yes|no|on|off|true|false|null)$)[a-z]([a-z0-9-]{0,48}[a-z0-9])?",
        "a letter, then lower-case letters, digits and hyphens, at most 50 characters, such as iris-service, "
        "and not a word like yes, no, on or off, which YAML reads as another type",
    ),
    "model_name": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such as iris",
    ),
    "model_version": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such as 1 or v1.2",
    ),
    # Docker's syntax: an optional registry host, then path components.
    "image_repository": (
        r"(?=.{1,255}$)([a-z0-9]+(-+[a-z0-9]+)*([.][a-z0-9]+(-+[a-z0-9]+)*)*(:[0-9]+)?/)?"
        r"[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*)*",
        "a repository's lower-case name without a tag, such as ghcr.io/you/iris-service",
    ),
    "apt_packages": (
        r"([a-z0-9][a-z0-9+.-]*[a-z0-9+]( [a-z0-9][a-z0-9+.-]*[a-z0-9+])*)?",
        "names of Debian packages separated by one space, such as libgl1 libsndfile1, or an empty value",
    ),
    # Values in setup.cfg. They must be one line and must not start with `file:` or `attr:`.
    "project_name": (r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of text"),
    "description": (
        r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,500}",
        "one line of text, no `file:`",
    ),
    "author": (
        r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}",
        "one line of text, no `file:`",
    ),
    "docs_url": (
        r"(https?://[^\s()<>]+)?",
        "a URL, such as https://example.org/docs, or an empty value",
    ),
}

# A project with the name of one of its dependencies would replace that package.
PACKAGES = """
annotated-doc annotated-types anyio apispec blinker cachetools certifi cffi charset-normalizer click cloudpickle
colorama cryptography cuda-bindings cuda-pathfinder cuda-toolkit databricks-sdk fastapi filelock flask flask-swagger-ui
flatbuffers fsspec gitdb gitpython google-auth grpcio grpcio-health-checking grpcio-reflection grpcio-tools gunicorn
h11 hf-xet httpcore2 httptools httpx2 httpx2-jsfetch huggingface-hub idna importlib-metadata itsdangerous jinja2 joblib
lightgbm markdown-it-py markupsafe marshmallow matplotlib mdurl mlflow-skinny mpmath mypy narwhals networkx numpy
nvidia-cublas nvidia-cuda-cccl nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft
nvidia-cufile nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink
nvidia-nvshmem-cu13 nvidia-nvtx onnxruntime opentelemetry-api opentelemetry-exporter-otlp-proto-http
opentelemetry-proto opentelemetry-sdk opentelemetry-semantic-conventions orjson packaging pandas pillow
prometheus-client protobuf pyarrow pyasn1 pyasn1-modules pycparser pydantic pydantic-core pygments pysimdjson pytest
python-dateutil python-dotenv pyyaml regex requests rich ruff safetensors scikit-learn scipy setuptools shellingham
smmap sqlparse starlette sympy threadpoolctl tokenizers torch tqdm transformers triton truststore typer
typing-extensions typing-inspection tzdata urllib3 uvicorn watchfiles werkzeug xgboost xgboost-cpu zipp
""".split()  # noqa: SIM905 - a list would take one line per name
# The project's command would replace a command of the same name in the virtual environment.
COMMANDS = """
activate cffi-gen-src deactivate dmypy dotenv f2py fonttools gunicornc hf huggingface-cli isympy markdown-it mlflow
mypyc normalizer numpy-config pip pip3 proton proton-viewer pyftmerge pyftsubset pygmentize python
python-grpc-tools-protoc python3 sqlformat stubgen stubtest tiny-agents torchfrtrace torchrun transformers-cli ttx
uv uvx watchfiles
""".split()  # noqa: SIM905

faults = [
    f"Invalid {name}. Expected {wanted}, got {ANSWERS[name]!r}."
    for name, (pattern, wanted) in RULES.items()
    if not re.fullmatch(pattern, ANSWERS[name])
]
faults += [  # `cruft update` would render the tag
    f"Invalid {name}. Expected no brace that opens a Jinja tag, got {ANSWERS[name]!r}."
    for name in RULES
    if re.search(r"\{[#%{]", ANSWERS[name])
]
if re.sub("-+", "-", ANSWERS["project_slug"]) in [
    *PACKAGES,
    *COMMANDS,
]:  # pip reads scikit--learn as scikit-learn
    faults.append(
        f"Invalid project_slug. Expected a name that is not a package or command, got {ANSWERS['project_slug']!r}."
    )
if faults:
    sys.exit("\n".join(faults))
