"""Attacks on a running service, and the memory, the log and the delays that they cause.

Each attack runs against a service of its own, with one worker and with API keys:

    start the service -> good clients and probes begin -> measure the worker -> attack for some
    seconds -> the attacker closes its connections -> wait until the worker gives its memory back

An attacker is cheap: one thread, nonblocking sockets and bytes that are built once. `swarm.py` has
its connections, `http2.py` its gRPC calls, and `attacks` has one function for each attack. A thread
watches the memory of the worker, and kills it before it occupies the memory of the machine.
"""
