"""deploy/helm: the pod, what it may do, asks for and finds in its place."""

from __future__ import annotations

from app.config import Settings
from app.metricfiles import WORKER_BYTES
from app.version import __version__

from .chart_values import CLAIMED, FEATURES, FETCHED, KEYS
from .manifests import (
    NAME,
    READY,
    Render,
    assert_probes,
    assert_restricted,
    container_of,
    environment,
    mounts,
    pod_of,
    probes,
    volumes,
)


def test_pods_are_restricted(render: Render):
    """The pods, those of `helm test` too, run with no more rights than they need; so does what brings the model."""
    for feature in ("defaults", "tls", "keys", "fetched", "claimed"):
        manifests = render(**FEATURES[feature])
        pods = [pod_of(manifests), manifests["Pod/test-rest"]["spec"], manifests["Pod/test-grpc"]["spec"]]
        for pod in pods:
            assert_restricted(pod)
            assert pod["serviceAccountName"] == NAME
        assert manifests["ServiceAccount"]["automountServiceAccountToken"] is False


def test_memory_and_disk_are_limited(render: Render):
    """Both empty folders have a limit, within the container's own; /dev/shm is memory, for more workers than cores."""
    manifests = render()
    folders, sizes = volumes(manifests), {"Mi": 2**20, "Gi": 2**30}

    def size(text: str) -> int:
        return int(text[:-2]) * sizes[text[-2:]]

    assert mounts(container_of(manifests)) == {"/tmp": "tmp", "/dev/shm": "shm"}
    limits = container_of(manifests)["resources"]["limits"]
    assert (
        limits.keys()
        == {"cpu", "memory", "ephemeral-storage"}
        == container_of(manifests)["resources"]["requests"].keys()
    )
    assert size(folders["tmp"]["emptyDir"]["sizeLimit"]) < size(limits["ephemeral-storage"])
    assert folders["shm"]["emptyDir"]["medium"] == "Memory"
    assert 16 * WORKER_BYTES < size(folders["shm"]["emptyDir"]["sizeLimit"]) < size(limits["memory"])
    shm = volumes(render(shm={"sizeLimit": "1Gi"}))["shm"]["emptyDir"]
    assert shm == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_probes_are_distinct(render: Render):
    """Startup and readiness ask whether the model is loaded, liveness whether the process answers."""
    container = container_of(render())
    assert_probes(container)
    assert {probe["httpGet"]["port"] for _, probe in probes(container)} == {"http"}


def test_probes_by_grpc(render: Render):
    """On demand gRPC is asked whether the model is loaded, with the same patience; whether it lives stays REST's."""
    by_http, by_grpc = container_of(render()), container_of(render(probeProtocol="grpc"))
    for name in ("startupProbe", "readinessProbe"):
        assert by_http[name].pop("httpGet")["path"] == READY
        assert by_grpc[name].pop("grpc") == {"port": Settings.grpc_port}
    assert dict(probes(by_http)) == dict(probes(by_grpc))


def test_tls_and_keys_come_from_secrets(render: Render):
    """A Secret of each is mounted where the settings look for it; then the probes ask by HTTPS, with no key."""
    manifests = render(tls={"existingSecret": "certificate"}, apiKeys={"existingSecret": "007"})
    container = container_of(manifests)
    folders = volumes(manifests)
    secrets = {path: folders[name].get("secret") for path, name in mounts(container).items() if path[:5] == "/etc/"}
    assert secrets == {
        "/etc/service/tls": {"secretName": "certificate"},
        "/etc/service/keys": {"secretName": "007"},
    }
    env = environment(container)
    assert (env["TLS_CERT_FILE"], env["TLS_KEY_FILE"]) == ("/etc/service/tls/tls.crt", "/etc/service/tls/tls.key")
    assert env["API_KEYS_FILE"] == "/etc/service/keys/keys.txt"
    assert {probe["httpGet"]["scheme"] for _, probe in probes(container)} == {"HTTPS"}
    assert {port["appProtocol"] for port in manifests["Service"]["spec"]["ports"]} == {"https"}
    assert all("scheme" not in probe["httpGet"] for _, probe in probes(container_of(render(**KEYS))))


def test_the_model_is_in_the_image(render: Render):
    """Unless told otherwise the service looks for the model where it is in the image."""
    manifests = render()
    assert "MODEL_DIR" not in environment(container_of(manifests))
    assert "initContainers" not in pod_of(manifests)


def test_the_model_is_on_a_volume(render: Render):
    """A claim is mounted, to be read, where MODEL_DIR says that the model is."""
    manifests = render(**CLAIMED)
    folder = environment(container_of(manifests))["MODEL_DIR"]
    (mount,) = (each for each in container_of(manifests)["volumeMounts"] if each["mountPath"] == folder)
    assert mount == {"name": "model", "mountPath": "/mnt/models", "subPath": "iris", "readOnly": True}
    assert volumes(manifests)["model"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


def test_the_model_is_fetched(render: Render):
    """An init container writes into the folder that the service reads from."""
    manifests = render(**FETCHED, initContainers=[{"name": "first", "image": "busybox:1"}])
    first, fetch = pod_of(manifests)["initContainers"]
    assert (first["name"], fetch["image"], fetch["command"]) == ("first", "fetch:1", ["fetch"])
    assert mounts(fetch) == {"/tmp": "tmp", "/mnt/models": "model"}
    folder = environment(container_of(manifests))["MODEL_DIR"]
    (mount,) = (each for each in container_of(manifests)["volumeMounts"] if each["mountPath"] == folder)
    assert mount == {"name": "model", "mountPath": "/mnt/models", "readOnly": True}
    assert volumes(manifests)["model"]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_image_is_of_the_app_version(render: Render):
    """The tag is the service's version, unless given; a digest counts before it; `helm test` has the same image."""
    assert container_of(render())["image"] == f"open-inference-service:{__version__}"
    image = {"repository": "images.example/models/iris", "tag": "2"}
    assert container_of(render(image=image))["image"] == "images.example/models/iris:2"
    digest = f"sha256:{'a' * 64}"
    manifests = render(image={**image, "digest": digest}, imagePullSecrets=[{"name": "pull"}])
    for pod in (pod_of(manifests), manifests["Pod/test-rest"]["spec"], manifests["Pod/test-grpc"]["spec"]):
        assert pod["containers"][0]["image"] == f"images.example/models/iris@{digest}"
        assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_no_service_of_the_namespace_reaches_the_settings(render: Render):
    """A Service named `http` would else set HTTP_PORT, to an address."""
    assert pod_of(render())["enableServiceLinks"] is False


def test_update_replaces_before_it_removes(render: Render):
    """No pod is taken away before its successor is ready, unless all are to go at once."""
    strategy = render()["Deployment"]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert render(**FEATURES["recreated"])["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert render(strategy={"rollingUpdate": None})["Deployment"]["spec"]["strategy"] == {"type": "RollingUpdate"}


def test_a_roll_out_fails_later_than_a_start(render: Render):
    """A pod may take as long as its start-up probe lets it before the roll-out counts as failed, unless told."""
    startup = container_of(render())["startupProbe"]
    spec = render()["Deployment"]["spec"]
    assert spec["progressDeadlineSeconds"] == 600 > startup["periodSeconds"] * startup["failureThreshold"]
    assert render(progressDeadlineSeconds=1800)["Deployment"]["spec"]["progressDeadlineSeconds"] == 1800


def test_service_account(render: Render):
    """It is made by the release's name or another, with a cloud's annotations, or is one that exists."""
    annotations = {"cloud.example/role": "reader"}
    manifests = render(serviceAccount={"name": "reader", "annotations": annotations})
    assert manifests["ServiceAccount/reader"]["metadata"]["annotations"] == annotations
    assert pod_of(manifests)["serviceAccountName"] == "reader"
    for values, name in (({"name": "mine"}, "mine"), ({}, "default")):
        manifests = render(serviceAccount={"create": False, **values})
        assert not any(kind.startswith("ServiceAccount") for kind in manifests)
        assert pod_of(manifests)["serviceAccountName"] == name


def test_placement_and_additions_arrive(render: Render):
    """What places the pod, and what is added to it, is passed on; `helm test` goes where the service may."""
    placed, added = FEATURES["placement"], FEATURES["additions"]
    manifests = render(**placed, **added)
    template, pod = manifests["Deployment"]["spec"]["template"], pod_of(manifests)
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"):
        assert pod[name] == placed[name]
    for name in ("nodeSelector", "tolerations"):
        assert manifests["Pod/test-rest"]["spec"][name] == placed[name]
    (constraint,) = pod["topologySpreadConstraints"]
    assert constraint.items() > placed["topologySpreadConstraints"][0].items()
    assert template["metadata"]["annotations"] == added["podAnnotations"]
    assert template["metadata"]["labels"]["team"] == "iris"
    assert pod["initContainers"] == added["initContainers"]
    assert pod["containers"][1:] == added["extraContainers"]
    assert pod["volumes"][-1:] == added["extraVolumes"]
    assert pod["containers"][0]["volumeMounts"][-1:] == added["extraVolumeMounts"]
    own = {**placed["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": {"a": "b"}}}
    assert pod_of(render(topologySpreadConstraints=[own]))["topologySpreadConstraints"] == [own]
