"""Performance benchmarks, which compare alternatives in alternating runs: make bench"""
