"""Hypothesis strategies for serialized gRPC messages.

They are valid, valid with a few bytes changed, or unusual.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from grpc_service import messages
from oip_conformance.wires import CONTENTS_FIELDS, InputTuple, pack
from tests.kit.strategies import Subject, long_texts, mostly, mutated, optional_members

CALLS = [method.name for method in messages.SERVICE.methods]
PARAMETER = messages.message("InferParameter")


def short_lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return a strategy for lists of at most three elements."""
    return st.lists(elements, max_size=3)


int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
contents = optional_members(
    bool_contents=short_lists(st.booleans()),
    int_contents=short_lists(int32s),
    int64_contents=short_lists(int64s),
    uint_contents=short_lists(st.integers(0, 2**32 - 1)),
    uint64_contents=short_lists(st.integers(0, 2**64 - 1)),
    fp32_contents=short_lists(st.floats(width=32)),
    fp64_contents=short_lists(st.floats()),
    bytes_contents=short_lists(st.binary(max_size=3)),
)
raw_entries = st.one_of(st.just(b""), st.just(bytes(4)), st.binary(max_size=8))


class Messages:
    """Strategies for messages to the model of `subject`.

    good: valid ModelInfer requests
    odd: ModelInfer requests of unusual tensors, outputs and parameters
    infer: pairs of "ModelInfer" and one of its requests, valid or not
    any_call: pairs of the name of a method and any bytes or a small message
    """

    def __init__(self, subject: Subject):
        self.subject = subject
        self.good = st.builds(
            self.message, subject.inputs, subject.requested_outputs, st.booleans()
        )

        parameter = st.one_of(
            st.builds(PARAMETER),
            st.builds(PARAMETER, bool_param=st.booleans()),
            st.builds(PARAMETER, int64_param=int64s),
            st.builds(PARAMETER, double_param=st.floats()),
            st.builds(PARAMETER, string_param=subject.words),
        )
        self.parameters = st.dictionaries(subject.words, parameter, max_size=2)
        self.odd = st.builds(
            self.odd_message,
            tensors=short_lists(self.odd_tensors()),
            raw=st.just([]) | short_lists(raw_entries),
            outputs=short_lists(self.odd_outputs()),
            parameters=self.parameters,
        )

        odd_texts = st.text(max_size=5) | long_texts
        names = mostly(st.sampled_from([subject.name, "x", ""]), odd_texts)
        versions = mostly(st.sampled_from(["", "1", "2"]), odd_texts)
        self.named = st.builds(self.named_message, names, versions)

        self.any_call = st.tuples(st.sampled_from(CALLS), st.binary(max_size=100) | self.named)
        infer_messages = st.one_of(self.good, mutated(self.good), self.odd)
        self.infer = st.tuples(st.just("ModelInfer"), infer_messages)

    def message(self, tensors: list[InputTuple], requested_outputs: list[str], raw: bool) -> bytes:
        """Return a ModelInfer request. It is raw if `raw` is true, or if a datatype requires it."""
        for _, datatype, _, _ in tensors:
            if datatype not in CONTENTS_FIELDS:
                raw = True

        request = messages.ModelInferRequest(
            model_name=self.subject.name, model_version="1", id="42"
        )
        for name in requested_outputs:
            request.outputs.add(name=name)
        for name, datatype, shape, values in tensors:
            tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
            if raw:
                request.raw_input_contents.append(pack(datatype, values))
            else:
                elements = getattr(tensor.contents, CONTENTS_FIELDS[datatype])
                elements.extend(values)
        return request.SerializeToString()

    def odd_tensors(self) -> st.SearchStrategy[dict[str, Any]]:
        """Return a strategy for inputs whose members need not fit each other."""
        datatypes = [*self.subject.datatypes, "FP16", "BF16", "fp32", ""]
        return st.fixed_dictionaries(
            {
                "name": self.subject.input_names,
                "datatype": st.sampled_from(datatypes),
                "shape": short_lists(st.one_of(st.integers(0, 4), int64s)),
            },
            optional={"contents": contents, "parameters": self.parameters},
        )

    def odd_outputs(self) -> st.SearchStrategy[dict[str, Any]]:
        """Return a strategy for requested outputs that need not exist."""
        return st.fixed_dictionaries(
            {"name": self.subject.output_names}, optional={"parameters": self.parameters}
        )

    def odd_message(
        self,
        tensors: list[dict[str, Any]],
        raw: list[bytes],
        outputs: list[dict[str, Any]],
        parameters: dict[str, Any],
    ) -> bytes:
        request = messages.ModelInferRequest(
            model_name=self.subject.name,
            inputs=tensors,
            raw_input_contents=raw,
            outputs=outputs,
            parameters=parameters,
        )
        return request.SerializeToString()

    def named_message(self, name: str, version: str) -> bytes:
        """Return a message for any method except ModelInfer. They have these fields or none."""
        request = messages.ModelReadyRequest(name=name, version=version)
        return request.SerializeToString()
