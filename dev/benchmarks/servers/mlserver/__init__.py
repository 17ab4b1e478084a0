"""The models in MLServer: mlserver start dev/benchmarks/servers/mlserver"""
