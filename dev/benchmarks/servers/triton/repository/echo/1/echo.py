from dev.benchmarks.servers.triton.models import Echo as TritonPythonModel  # noqa: F401
