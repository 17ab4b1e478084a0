"""The cases in BentoML's request formats, because BentoML does not implement the Open Inference Protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from dev.benchmarks import cases
from dev.benchmarks.cases import Case, equal
from dev.benchmarks.servers import models


@dataclass(frozen=True)
class BentoCase(Case):
    """A request to the route of a method. BentoML converts the body to the method's parameter."""

    route: str = ""
    content_type: str = "application/json"

    @property
    def path(self) -> str:
        return f"/{self.route}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.content_type}


def rest_json(name: str, x: np.ndarray, y: np.ndarray) -> BentoCase:
    def check(body: bytes, headers: dict[str, str]) -> None:
        equal(json.loads(body)["y"], y)

    case = by_name[name]
    body = json.dumps({"x": x.tolist()}).encode()
    return BentoCase(name, case.title, "http", case.model, body, check, route=case.model)


def rest_binary(name: str, x: np.ndarray, y: np.ndarray) -> BentoCase:
    def check(body: bytes, headers: dict[str, str]) -> None:
        equal(np.frombuffer(body, "<f4"), y)

    case = by_name[name]
    made = BentoCase(
        name, case.title, "http", case.model, x.tobytes(), check, route=f"{case.model}_bytes"
    )
    return replace(made, content_type="application/octet-stream")


def rest_frame(name: str) -> BentoCase:
    """Return the request with the columns as a dict of lists."""
    case = by_name[name]
    inputs = json.loads(case.body)["inputs"]
    columns = {tensor["name"]: tensor["data"] for tensor in inputs}
    expected = models.frame_scores(columns)

    def check(body: bytes, headers: dict[str, str]) -> None:
        equal(json.loads(body)["y"], expected)

    body = json.dumps({"x": columns}).encode()
    return BentoCase(name, case.title, "http", case.model, body, check, route=case.model)


by_name = {case.name: case for case in cases.CASES}
S1 = rest_json("S1", cases.one, models.linear(cases.one))
CASES = [
    S1,
    replace(S1, name="U1", title=cases.U1.title, has_tracing_headers=True),
    rest_json("S2", cases.many, models.linear(cases.many)),
    rest_json("M1", cases.vector, cases.single),
    rest_binary("B1", cases.block, cases.block),
    rest_frame("D1"),
    rest_frame("D100"),
]
