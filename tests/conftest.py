"""Settings of all tests."""

import gc

# By default, full collections take a seventh of the CPU time, because each process holds thousands of tests.
gc.set_threshold(100_000, 20, 100)
