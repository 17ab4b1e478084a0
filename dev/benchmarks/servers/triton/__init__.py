"""The models in Triton: python -m dev.benchmarks.servers.triton HTTP_PORT GRPC_PORT"""
