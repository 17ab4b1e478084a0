"""The models in MLServer: mlserver start benchmarks/servers/mlserver"""
