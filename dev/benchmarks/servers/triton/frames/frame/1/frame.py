from dev.benchmarks.servers.triton.frame_model import Frame as TritonPythonModel  # noqa: F401
