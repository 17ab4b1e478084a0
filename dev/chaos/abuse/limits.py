"""The limits that the attacks check. All sizes are in MiB, all times in seconds."""

from __future__ import annotations

# Memory of the worker above its idle memory, for everything that a client without a key does.
WITHOUT_KEY_MIB = 128

# The factors of docs/growing.md: memory that a request needs, as a multiple of its decompressed
# body. Update them together with that page. Rejected requests count as any request.
FACTORS = {
    "JSON, long numbers": 4,
    "JSON, short numbers": 16,
    "JSON, short texts": 34,
    "JSON, any request": 50,
    "binary, numbers": 2,
    "binary, short texts": 37,
    "raw, numbers": 4,
    "raw, short texts": 37,
    "typed, small integers": 30,
    "typed, short texts": 57,
    "gRPC, any request": 75,
}
# Buffers that do not depend on the size of a request.
SLACK_MIB = 24

# The worker is killed at this memory.
MAX_WORKER_MIB = 2048
# The worker may keep this above its idle memory: 64 MiB of free memory that malloc keeps
# (configure_malloc() in app/config/resources.py), and fragments.
KEPT_MIB = 96
# The log may have a line for each rejected request, and not more.
MAX_LOG_MIB = 32

# An attack ends after this time, whatever its state.
MAX_ATTACK_SECONDS = 60
# The memory is reported at this time after an attack.
LATER_SECONDS = 10
GIVE_BACK_SECONDS = 30

GOOD_P99_SECONDS = 1
# Share of the requests of good clients that may fail.
MAX_FAILED_SHARE = 0.01
# The timeouts of the probes in deploy/helm/values.yaml.
READINESS_SECONDS = 3
LIVENESS_SECONDS = 5
