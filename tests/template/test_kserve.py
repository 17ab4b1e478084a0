"""deploy/kserve: KServe takes the manifests, and they agree with the chart."""

from __future__ import annotations

from copy import deepcopy

import yaml

from app.config import Settings

from .manifests import DEPLOY, Render, assert_probes, assert_restricted, container_of, environment, validator_of


def test_kserve_manifest_is_valid():
    """KServe's CRD takes the InferenceService, and a misspelt member would have been refused."""
    validator = validator_of("inferenceservice.serving.kserve.io", "v1beta1")
    manifest = yaml.safe_load((DEPLOY / "kserve" / "inferenceservice.yaml").read_text())
    validator.validate(manifest)
    misspelt = deepcopy(manifest)
    misspelt["spec"]["predictor"]["containers"][0]["prots"] = []
    assert not validator.is_valid(misspelt)


def test_kserve_manifest_agrees_with_the_chart(render: Render):
    """The InferenceService has the ports, probes and rights that the chart has, and the protocol's version."""
    pod = yaml.safe_load((DEPLOY / "kserve" / "inferenceservice.yaml").read_text())["spec"]["predictor"]
    (container,) = pod["containers"]
    chart = container_of(render())
    assert_restricted(pod)
    assert_probes(container)
    assert container["name"] == "kserve-container"
    assert [port["containerPort"] for port in container["ports"]] == [port["containerPort"] for port in chart["ports"]]
    assert environment(container)["PROTOCOL"] == "v2"
    assert pod["enableServiceLinks"] is False
    assert pod["terminationGracePeriodSeconds"] > Settings().drain_seconds + Settings().graceful_timeout
