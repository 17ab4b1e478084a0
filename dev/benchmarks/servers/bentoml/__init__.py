"""The models in BentoML: bentoml serve benchmarks.servers.bentoml.service:Models"""
