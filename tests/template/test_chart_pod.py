"""deploy/helm: the permissions, resources, probes and volumes of the pod."""

from __future__ import annotations

from app.config.settings import Settings, read_settings
from app.observability.metric_files import WORKER_BYTES
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
    """The service, `helm test` and init containers run with no more permissions than they need."""
    for feature in ("defaults", "tls", "keys", "fetched", "claimed"):
        manifests = render(**FEATURES[feature])
        pods = [
            pod_of(manifests),
            manifests["Pod/test-rest"]["spec"],
            manifests["Pod/test-grpc"]["spec"],
        ]
        for pod in pods:
            assert_restricted(pod)
            assert pod["serviceAccountName"] == NAME
        assert manifests["ServiceAccount"]["automountServiceAccountToken"] is False


def test_memory_and_disk_are_limited(render: Render):
    """Both empty volumes have a size limit within the container's limits. /dev/shm has room for 16 workers."""
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
    assert (
        16 * WORKER_BYTES < size(folders["shm"]["emptyDir"]["sizeLimit"]) < size(limits["memory"])
    )
    shm = volumes(render(shm={"sizeLimit": "1Gi"}))["shm"]["emptyDir"]
    assert shm == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_gpus_set_limit_and_devices(render: Render):
    """`gpus` sets the limit for GPUs and DEVICES, and keeps the other resources. By default, neither is set."""
    default, manifests = container_of(render()), render(gpus=2)
    assert "DEVICES" not in environment(default)
    limits = container_of(manifests)["resources"]["limits"]
    assert limits == {**default["resources"]["limits"], "nvidia.com/gpu": 2}
    assert read_settings(environment(container_of(manifests))).devices == ("0", "1")
    assert container_of(render(gpus=1, resources=None))["resources"] == {
        "limits": {"nvidia.com/gpu": 1}
    }


def test_probes_are_distinct(render: Render):
    """Startup and readiness probes check that the model is loaded, the liveness probe that the process responds."""
    container = container_of(render())
    assert_probes(container)
    assert {probe["httpGet"]["port"] for _, probe in probes(container)} == {"http"}


def test_grpc_probes(render: Render):
    """With probeProtocol=grpc, startup and readiness use gRPC with the same times, and liveness stays HTTP."""
    by_http, by_grpc = container_of(render()), container_of(render(probeProtocol="grpc"))
    for name in ("startupProbe", "readinessProbe"):
        assert by_http[name].pop("httpGet")["path"] == READY
        assert by_grpc[name].pop("grpc") == {"port": Settings.grpc_port}
    assert dict(probes(by_http)) == dict(probes(by_grpc))


def test_tls_and_keys_come_from_secrets(render: Render):
    """TLS and API key Secrets are mounted where the settings expect them. With TLS, probes use HTTPS without a key."""
    manifests = render(tls={"existingSecret": "certificate"}, apiKeys={"existingSecret": "007"})
    container = container_of(manifests)
    folders = volumes(manifests)
    secrets = {
        path: folders[name].get("secret")
        for path, name in mounts(container).items()
        if path[:5] == "/etc/"
    }
    assert secrets == {
        "/etc/service/tls": {"secretName": "certificate"},
        "/etc/service/keys": {"secretName": "007"},
    }
    env = environment(container)
    assert (env["TLS_CERT_FILE"], env["TLS_KEY_FILE"]) == (
        "/etc/service/tls/tls.crt",
        "/etc/service/tls/tls.key",
    )
    assert env["API_KEYS_FILE"] == "/etc/service/keys/keys.txt"
    assert {probe["httpGet"]["scheme"] for _, probe in probes(container)} == {"HTTPS"}
    assert {port["appProtocol"] for port in manifests["Service"]["spec"]["ports"]} == {"https"}
    assert all(
        "scheme" not in probe["httpGet"] for _, probe in probes(container_of(render(**KEYS)))
    )


def test_model_in_image(render: Render):
    """By default, the service loads the model from the image."""
    manifests = render()
    assert "MODEL_DIR" not in environment(container_of(manifests))
    assert "initContainers" not in pod_of(manifests)


def test_model_on_volume(render: Render):
    """The volume claim is mounted read-only at MODEL_DIR."""
    manifests = render(**CLAIMED)
    folder = environment(container_of(manifests))["MODEL_DIR"]
    (mount,) = (
        mount for mount in container_of(manifests)["volumeMounts"] if mount["mountPath"] == folder
    )
    assert mount == {
        "name": "model",
        "mountPath": "/mnt/models",
        "subPath": "iris",
        "readOnly": True,
    }
    assert volumes(manifests)["model"]["persistentVolumeClaim"] == {
        "claimName": "models",
        "readOnly": True,
    }


def test_model_from_init_container(render: Render):
    """An init container writes into the directory that the service mounts read-only."""
    manifests = render(**FETCHED, initContainers=[{"name": "first", "image": "busybox:1"}])
    first, fetch = pod_of(manifests)["initContainers"]
    assert (first["name"], fetch["image"], fetch["command"]) == ("first", "fetch:1", ["fetch"])
    assert mounts(fetch) == {"/tmp": "tmp", "/mnt/models": "model"}
    folder = environment(container_of(manifests))["MODEL_DIR"]
    (mount,) = (
        mount for mount in container_of(manifests)["volumeMounts"] if mount["mountPath"] == folder
    )
    assert mount == {"name": "model", "mountPath": "/mnt/models", "readOnly": True}
    assert volumes(manifests)["model"]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_image_defaults_to_app_version(render: Render):
    """The image tag defaults to the service's version.

    A digest takes precedence, and `helm test` uses the same image.
    """
    assert container_of(render())["image"] == f"open-inference-service:{__version__}"
    image = {"repository": "images.example/models/iris", "tag": "2"}
    assert container_of(render(image=image))["image"] == "images.example/models/iris:2"
    digest = f"sha256:{'a' * 64}"
    manifests = render(image={**image, "digest": digest}, imagePullSecrets=[{"name": "pull"}])
    for pod in (
        pod_of(manifests),
        manifests["Pod/test-rest"]["spec"],
        manifests["Pod/test-grpc"]["spec"],
    ):
        assert pod["containers"][0]["image"] == f"images.example/models/iris@{digest}"
        assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_service_links_are_off(render: Render):
    """Service links are off, because a Service named `http` would set HTTP_PORT to an address."""
    assert pod_of(render())["enableServiceLinks"] is False


def test_rolling_update_keeps_replicas(render: Render):
    """An update removes no pod before its replacement is ready, unless the strategy is Recreate."""
    strategy = render()["Deployment"]["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }
    assert render(**FEATURES["recreated"])["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert render(strategy={"rollingUpdate": None})["Deployment"]["spec"]["strategy"] == {
        "type": "RollingUpdate"
    }


def test_rollout_deadline_exceeds_startup(render: Render):
    """By default, the rollout deadline is longer than the startup probe allows. It can be changed."""
    startup = container_of(render())["startupProbe"]
    spec = render()["Deployment"]["spec"]
    assert (
        spec["progressDeadlineSeconds"]
        == 600
        > startup["periodSeconds"] * startup["failureThreshold"]
    )
    assert (
        render(progressDeadlineSeconds=1800)["Deployment"]["spec"]["progressDeadlineSeconds"]
        == 1800
    )


def test_service_account(render: Render):
    """The service account is created with a default or given name and annotations, or an existing one is used."""
    annotations = {"cloud.example/role": "reader"}
    manifests = render(serviceAccount={"name": "reader", "annotations": annotations})
    assert manifests["ServiceAccount/reader"]["metadata"]["annotations"] == annotations
    assert pod_of(manifests)["serviceAccountName"] == "reader"
    for values, name in (({"name": "mine"}, "mine"), ({}, "default")):
        manifests = render(serviceAccount={"create": False, **values})
        assert not any(kind.startswith("ServiceAccount") for kind in manifests)
        assert pod_of(manifests)["serviceAccountName"] == name


def test_placement_and_additions(render: Render):
    """Placement settings and additions are passed to the pod. `helm test` runs on the same nodes."""
    placed, added = FEATURES["placement"], FEATURES["additions"]
    manifests = render(**placed, **added)
    template, pod = manifests["Deployment"]["spec"]["template"], pod_of(manifests)
    for name in (
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "runtimeClassName",
    ):
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
    own_constraint = {
        **placed["topologySpreadConstraints"][0],
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    assert pod_of(render(topologySpreadConstraints=[own_constraint]))[
        "topologySpreadConstraints"
    ] == [own_constraint]
