"""Your routes, middleware, codecs, metrics and gRPC interceptors.

`cruft update` does not change this file.
"""


def init_app(app):
    """Add routes and middleware to the Flask application.

    `app.extensions["service"].infer()` calls the model.
    """


def grpc_interceptors():
    """Return interceptors for the gRPC server. They run after the check of the API key."""
    return []
