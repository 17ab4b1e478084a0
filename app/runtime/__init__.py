"""Processes of the service: gunicorn's master, and its workers with the lifecycle of the model."""

# True in a worker of gunicorn. There, create_app() does not load the model, because WorkerLifecycle
# loads it in a thread, while the worker responds to probes. gunicorn calls create_app() without
# arguments.
is_worker = False
