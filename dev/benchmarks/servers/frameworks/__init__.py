"""Models that run in PyTorch and in ONNX Runtime."""
