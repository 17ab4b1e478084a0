"""The models in Triton: python -m benchmarks.servers.triton HTTP_PORT GRPC_PORT"""
