from dev.benchmarks.servers.triton.models import Linear as TritonPythonModel  # noqa: F401
