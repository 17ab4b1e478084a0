"""Checks the answers before a file is written; says what is wrong with each, and what would be right."""

import json
import re
import sys

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
RULES = {
    "project_slug": (
        r"(?!(y|n|yes|no|on|off|true|false|null)$)[a-z]([a-z0-9-]{0,48}[a-z0-9])?",
        "a letter, then lower-case letters, digits and hyphens, at most 50 in all, such as iris-service; "
        "and not yes, no, on, off and their like, which YAML takes for something else",
    ),
    "model_name": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such as iris",
    ),
    "model_version": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such as 1 or v1.2",
    ),
    # As docker has it: the host of a registry, if any, and names.
    "image_repository": (
        r"(?=.{1,255}$)([a-z0-9]+(-+[a-z0-9]+)*([.][a-z0-9]+(-+[a-z0-9]+)*)*(:[0-9]+)?/)?"
        r"[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*)*",
        "a repository's lower-case name without a tag, such as ghcr.io/you/iris-service",
    ),
    # setup.cfg reads these: one line each, and no `file:` or `attr:` that it would follow.
    "project_name": (r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of text"),
    "description": (r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,500}", "one line of text, no `file:`"),
    "author": (r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}", "one line of text, no `file:`"),
}

# pip would take the project for one of the packages that it needs, or of those that make it,
PACKAGES = """
annotated-doc annotated-types anyio apispec backports-datetime-fromisoformat blinker cachetools certifi cffi
charset-normalizer click cloudpickle colorama coloredlogs cryptography cuda-bindings cuda-pathfinder cuda-toolkit
databricks-sdk exceptiongroup fastapi filelock flask flask-swagger-ui flatbuffers fsspec gitdb gitpython google-auth
grpcio grpcio-health-checking grpcio-reflection grpcio-tools gunicorn h11 hf-xet httpcore2 httpx2 httpx2-jsfetch
huggingface-hub humanfriendly hypothesis idna importlib-metadata itsdangerous jinja2 joblib lightgbm markdown-it-py
markupsafe marshmallow matplotlib mdurl mlflow-skinny mpmath mypy narwhals networkx numpy nvidia-cublas
nvidia-cuda-cccl nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft
nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink
nvidia-nvshmem-cu13 nvidia-nvtx onnxruntime opentelemetry-api opentelemetry-exporter-otlp-proto-http
opentelemetry-proto opentelemetry-sdk opentelemetry-semantic-conventions orjson packaging pandas pillow
prometheus-client protobuf pyarrow pyasn1 pyasn1-modules pycparser pydantic pydantic-core pygments pyreadline3
pysimdjson pytest pytest-timeout pytest-xdist python-dateutil python-dotenv pytz pyyaml regex requests rich ruff
safetensors scikit-learn scipy setuptools shellingham six smmap sqlparse starlette sympy threadpoolctl tokenizers
tomli torch tqdm transformers triton trustme truststore typer typing-extensions typing-inspection tzdata urllib3
uvicorn werkzeug xgboost xgboost-cpu zipp
""".split()  # noqa: SIM905 - a list of them would be a screen long
# or put its command in the place of another that they, or the environment, bring.
COMMANDS = """
activate cffi-gen-src deactivate dmypy dotenv f2py fonttools gunicornc hf huggingface-cli isympy markdown-it mlflow
mypyc normalizer numpy-config pip pip3 proton proton-viewer pyftmerge pyftsubset pygmentize python
python-grpc-tools-protoc python3 sqlformat stubgen stubtest tiny-agents torchfrtrace torchrun transformers-cli ttx
uv uvx
""".split()  # noqa: SIM905

faults = [
    f"{name} {ANSWERS[name]!r} will not do: expected {wanted}"
    for name, (pattern, wanted) in RULES.items()
    if not re.fullmatch(pattern, ANSWERS[name])
]
faults += [  # which an update would follow
    f"{name} {ANSWERS[name]!r} will not do: expected no brace that opens a Jinja tag"
    for name in RULES
    if re.search(r"\{[#%{]", ANSWERS[name])
]
if re.sub("-+", "-", ANSWERS["project_slug"]) in [*PACKAGES, *COMMANDS]:  # pip reads scikit--learn as scikit-learn
    faults.append(
        f"project_slug {ANSWERS['project_slug']!r} will not do: expected a name that no package or command in it has"
    )
if faults:
    sys.exit("\n".join(faults))
