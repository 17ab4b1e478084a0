"""Origins of the rules and cases.

They separate the specification from extensions, which a server can omit. A rule has one origin.
Some of its cases can have another one, because docs/protocol.md also settles questions that the
specification leaves open.
"""

from __future__ import annotations

from enum import Enum
from fnmatch import fnmatchcase


class Origin(Enum):
    """The source of a requirement. The value is its title."""

    SPECIFICATION = "Specification"
    TRITON = "Triton's extensions"
    MLSERVER = "MLServer's content types"
    KSERVE = "KServe's extensions"
    OWN = "Decisions of this service"

    @property
    def key(self) -> str:
        return self.name.lower()


SPECIFICATION = Origin.SPECIFICATION
TRITON = Origin.TRITON
MLSERVER = Origin.MLSERVER
KSERVE = Origin.KSERVE
OWN = Origin.OWN

# SPECIFICATION includes HTTP, JSON and gRPC, on which the specification is based.
RULES_BY_ORIGIN = {
    SPECIFICATION: "R1 R2 R4 R5 R6 R7 R8 R9 R10 R14 R16 R17 R18 R20 R21 G1 G2 G3 G5",
    TRITON: "R23 B1 B2 B3 B4 B5 B6 B7 B8 T1 T2 T3",
    MLSERVER: "C5 C7",
    KSERVE: "R22",
    OWN: "R3 R11 R12 R13 R15 R19 G4 G6 G7 C2",
}


def origins_by_rule() -> dict[str, Origin]:
    origins = {}
    for origin, rules in RULES_BY_ORIGIN.items():
        for rule in rules.split():
            origins[rule] = origin
    return origins


RULE_ORIGINS = origins_by_rule()

# Rule, test, parameters (* stands for any text) and origin.
CaseOrigin = tuple[str, str, str, Origin]
# Cases with another origin than their rule. If several lines match a case, the first line counts.
CASE_ORIGINS: list[CaseOrigin] = [
    ("R1", "test_input_names_are_case_sensitive", "*", OWN),
    ("R1", "test_output_names_are_case_sensitive", "*", OWN),
    ("R2", "test_get", "*/", OWN),
    ("R2", "test_get_version", "*/", OWN),
    ("R2", "test_infer", "/", OWN),
    ("R2", "test_infer_version", "/", OWN),
    ("R3", "test_response_version", "*", SPECIFICATION),
    ("R4", "test_binary_extension_is_listed", "", TRITON),
    ("R4", "test_statistics_extension", "", TRITON),
    ("R4", "test_same_server_metadata", "", OWN),
    ("R5", "test_health", "/v2/health/ready-{'ready': True}", OWN),
    ("R6", "test_same_model_metadata", "", OWN),
    ("R7", "test_unknown_and_null_members", "*", OWN),
    ("R8", "test_id", "*-None", OWN),
    ("R8", "test_id_in_json", "*", OWN),
    ("R9", "test_invalid_dimensions", "?1.0?", OWN),
    ("R10", "test_nesting", "[4]-[1, 2, 3, 4]-4", SPECIFICATION),
    ("R10", "test_nesting", "[2, 2]-[1, 2, 3, 4]-4", SPECIFICATION),
    ("R10", "test_nesting", "[2, 2]-[[1, 2], [3, 4]]-4", SPECIFICATION),
    ("R10", "test_nesting", "[0]-[]-0", SPECIFICATION),
    ("R10", "test_nesting", "[2, 0]-[[], []]-0", SPECIFICATION),
    ("R10", "test_nesting", "*", OWN),
    ("R11", "test_elements", "UINT16-*", SPECIFICATION),
    ("R11", "test_elements", "INT16-*", SPECIFICATION),
    ("R11", "test_elements", "INT32-*", SPECIFICATION),
    ("R11", "test_elements", "INT64-*807*", SPECIFICATION),
    ("R11", "test_elements", "BYTES-*", SPECIFICATION),
    ("R11", "test_integer_limits", "*", SPECIFICATION),
    ("R12", "test_nan", "grpc *", SPECIFICATION),
    ("R12", "test_nan", "rest binary-*", TRITON),
    ("R12", "test_infinity_in_bytes", "*", SPECIFICATION),
    ("R12", "test_invalid_json_numbers", "*1e*", OWN),
    ("R12", "test_invalid_json_numbers", "*", SPECIFICATION),
    ("R14", "test_bytes_as_json", "*", OWN),
    ("R14", "test_unpaired_surrogate", "*", OWN),
    ("R15", "test_inputs_in_any_order", "*", SPECIFICATION),
    ("R15", "test_rejects_invalid_inputs", "*an unknown datatype*", SPECIFICATION),
    ("R16", "test_rejects_invalid_outputs", "*twice*", OWN),
    ("R16", "test_requested_outputs", "*, *", OWN),
    ("R16", "test_all_outputs", "*", OWN),
    ("R17", "test_null_parameters", "*", OWN),
    ("R17", "test_parameter_without_value", "*", OWN),
    ("R18", "test_content_type_is_ignored", "*", OWN),
    ("R18", "test_content_codings", "", OWN),
    ("R18", "test_unknown_codings", "*", OWN),
    ("R18", "test_corrupt_compressed_body", "*", OWN),
    ("R18", "test_wrong_content_encoding", "", OWN),
    ("R18", "test_compressed_response", "*", OWN),
    ("R18", "test_only_inferences_are_compressed", "", OWN),
    ("R19", "test_method_not_allowed", "*", SPECIFICATION),
    ("R19", "test_head_of_infer", "", SPECIFICATION),
    ("R19", "test_unknown_path", "*", SPECIFICATION),
    ("R19", "test_errors_are_json", "*-400-None", SPECIFICATION),
    ("R20", "test_nesting_limit", "*", OWN),
    ("R20", "test_deep_nesting", "*", OWN),
    ("R20", "test_deeply_nested_data", "", OWN),
    ("R20", "test_malformed_chunks", "*", OWN),
    ("R20", "test_body_shorter_than_content_length", "*", OWN),
    ("R20", "test_many_requests_on_one_connection", "", OWN),
    ("R21", "test_query_is_ignored", "*", OWN),
    ("R21", "test_options", "*", OWN),
    ("T1", "test_config_of_unknown_model", "", OWN),
    ("T1", "test_config_of_unknown_model_over_grpc", "", OWN),
    ("T2", "test_invalid_index_request", "*", OWN),
    ("T3", "test_statistics_of_unknown_model", "", OWN),
    ("T3", "test_statistics_of_unknown_model_over_grpc", "", OWN),
    ("R22", "test_model_names", "/", OWN),
    ("C7", "test_invalid_base64", "*", OWN),
    ("G1", "test_malformed_message", "*", OWN),
    ("G1", "test_same_error_message", "*", OWN),
    ("G2", "test_raw_bool_is_0_or_1", "*", OWN),
    ("G2", "test_empty_contents_with_raw_entries", "", OWN),
    ("G3", "test_limits_of_contents", "*", OWN),
    ("G5", "test_id", "", OWN),
]


def origin_of(rule: str, test: str) -> Origin:
    """Return the origin of a case.

    `test` is the name of the test with its parameters in square brackets.
    """
    function, parameters = split_case_name(test)
    origin = RULE_ORIGINS[rule]
    for line in CASE_ORIGINS:
        if matches_case(line, rule, function, parameters):
            origin = line[-1]
            break
    if origin is SPECIFICATION and parameters.startswith("rest binary"):
        return TRITON  # the form is an extension
    return origin


def split_case_name(test: str) -> tuple[str, str]:
    """Return the name of the test's function, and its parameters or ""."""
    function, _, parameters = test.partition("[")
    return function, parameters.removesuffix("]")


def matches_case(line: CaseOrigin, rule: str, function: str, parameters: str) -> bool:
    """Return True if the line of CASE_ORIGINS applies to the case."""
    line_rule, line_function, pattern, _ = line
    if (line_rule, line_function) != (rule, function):
        return False
    # Square brackets have a meaning in patterns. A shape is therefore compared as text, too.
    return parameters == pattern or fnmatchcase(parameters, pattern)
