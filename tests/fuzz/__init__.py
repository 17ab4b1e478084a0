"""Fuzzer for the running service, with several hundred thousand generated requests. See README.md."""
