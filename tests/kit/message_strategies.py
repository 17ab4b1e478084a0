"""Hypothesis strategies for serialized gRPC messages: valid, valid with a few bytes changed, and unusual."""

from __future__ import annotations

from hypothesis import strategies as st

from grpc_service import messages
from oip_conformance.wires import CONTENTS, Sent, pack
from tests.kit.strategies import Subject, long_texts, mostly, mutated

CALLS = [method.name for method in messages.SERVICE.methods]
PARAMETER = messages.message("InferParameter")

int32s, int64s = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
contents = st.fixed_dictionaries(
    {},
    optional={
        "bool_contents": st.lists(st.booleans(), max_size=3),
        "int_contents": st.lists(int32s, max_size=3),
        "int64_contents": st.lists(int64s, max_size=3),
        "uint_contents": st.lists(st.integers(0, 2**32 - 1), max_size=3),
        "uint64_contents": st.lists(st.integers(0, 2**64 - 1), max_size=3),
        "fp32_contents": st.lists(st.floats(width=32), max_size=3),
        "fp64_contents": st.lists(st.floats(), max_size=3),
        "bytes_contents": st.lists(st.binary(max_size=3), max_size=3),
    },
)
raw_entries = st.one_of(st.just(b""), st.just(bytes(4)), st.binary(max_size=8))


class Messages:
    """Strategies for messages to the model of `subject`."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.parameters = st.dictionaries(
            subject.words,
            st.one_of(
                st.builds(PARAMETER),
                st.builds(PARAMETER, bool_param=st.booleans()),
                st.builds(PARAMETER, int64_param=int64s),
                st.builds(PARAMETER, double_param=st.floats()),
                st.builds(PARAMETER, string_param=subject.words),
            ),
            max_size=2,
        )
        self.good = st.builds(
            self.message, subject.inputs, subject.requested_outputs, st.booleans()
        )
        self.odd = st.builds(
            self.odd_message,
            tensors=st.lists(self.odd_tensors(), max_size=3),
            raw=st.just([]) | st.lists(raw_entries, max_size=3),
            outputs=st.lists(
                st.fixed_dictionaries(
                    {"name": subject.output_names}, optional={"parameters": self.parameters}
                ),
                max_size=3,
            ),
            parameters=self.parameters,
        )
        names = mostly(st.sampled_from([subject.name, "x", ""]), st.text(max_size=5) | long_texts)
        versions = mostly(st.sampled_from(["", "1", "2"]), st.text(max_size=5) | long_texts)
        # All methods except ModelInfer have the fields of this message, or no fields.
        self.named = st.builds(
            lambda name, version: messages.ModelReadyRequest(
                name=name, version=version
            ).SerializeToString(),
            names,
            versions,
        )
        self.any_call = st.tuples(st.sampled_from(CALLS), st.binary(max_size=100) | self.named)
        self.infer = st.tuples(
            st.just("ModelInfer"), st.one_of(self.good, mutated(self.good), self.odd)
        )

    def message(self, tensors: list[Sent], requested_outputs: list[str], raw: bool) -> bytes:
        raw = raw or any(datatype not in CONTENTS for _, datatype, _, _ in tensors)
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
                getattr(tensor.contents, CONTENTS[datatype]).extend(values)
        return request.SerializeToString()

    def odd_tensors(self) -> st.SearchStrategy[dict]:
        return st.fixed_dictionaries(
            {
                "name": self.subject.input_names,
                "datatype": st.sampled_from([*self.subject.datatypes, "FP16", "BF16", "fp32", ""]),
                "shape": st.lists(st.one_of(st.integers(0, 4), int64s), max_size=3),
            },
            optional={"contents": contents, "parameters": self.parameters},
        )

    def odd_message(
        self, tensors: list[dict], raw: list[bytes], outputs: list[dict], parameters: dict
    ) -> bytes:
        return messages.ModelInferRequest(
            model_name=self.subject.name,
            inputs=tensors,
            raw_input_contents=raw,
            outputs=outputs,
            parameters=parameters,
        ).SerializeToString()
