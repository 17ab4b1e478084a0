"""Rules for the requests of a test, with small limits."""

from app.server.request_head import Rules

RULES = Rules(
    max_line_bytes=100,
    max_fields=10,
    max_field_bytes=100,
    max_body_bytes=100,
    max_body_setting="MAX_BODY_BYTES",
    base_environ={"SCRIPT_NAME": ""},
    trusted_names=frozenset(),
    secure_schemes={},
    accepts_head=lambda environ: True,
)
