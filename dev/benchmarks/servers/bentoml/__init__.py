"""The models in BentoML: bentoml serve dev.benchmarks.servers.bentoml.service:Models"""
