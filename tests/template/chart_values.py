"""Chart values for the tests: each feature separately, and combinations of all compatible features."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]

ENABLED = {"enabled": True}
TLS: Values = {"tls": {"existingSecret": "certificate"}}
KEYS: Values = {"apiKeys": {"existingSecret": "keys"}}
GATEWAY = [{"name": "gateway", "namespace": "edge", "sectionName": "https"}]
FETCHED: Values = {
    "model": {
        "initContainer": {"image": "fetch:1", "command": ["fetch"], "args": ["iris", "/mnt/models"]}
    }
}
CLAIMED: Values = {"model": {"persistentVolumeClaim": {"claimName": "models", "subPath": "iris"}}}
HPA: Values = {
    "autoscaling": {**ENABLED, "minReplicas": 2, "maxReplicas": 9, "targetRequestsInFlight": 8}
}
KEDA: Values = {
    "keda": {
        **ENABLED,
        "minReplicaCount": 2,
        "annotations": {"autoscaling.keda.sh/paused": "false"},
        "targetCPUUtilizationPercentage": 70,
        "prometheus": {"serverAddress": "http://prometheus:9090"},
        "triggers": [
            {
                "type": "cron",
                "metadata": {"timezone": "UTC", "start": "0 8 * * *", "end": "0 9 * * *"},
            }
        ],
    },
    "monitoring": {"podMonitor": ENABLED},
}

FEATURES: dict[str, Values] = {
    "defaults": {},
    "names": {"nameOverride": "iris", "fullnameOverride": "the-iris"},
    "image": {"image": {"digest": f"sha256:{'0' * 64}"}, "imagePullSecrets": [{"name": "pull"}]},
    "config": {
        "config": {
            "HOST": "::",
            "WORKERS": 2,
            "MAX_BATCH_DELAY_MS": 0.5,
            "LOG_FORMAT": "json",
        },
        "extraEnv": [
            {"name": "OTEL_SERVICE_NAME", "value": "iris"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "more"}, "prefix": "MORE_"}],
    },
    "fetched": FETCHED,
    "claimed": CLAIMED,
    "tls": TLS,
    "keys": KEYS,
    "service": {
        "service": {
            "type": "LoadBalancer",
            "httpPort": 80,
            "annotations": {"a": "b"},
            "headless": True,
        }
    },
    "dual stack": {
        "service": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    },
    "ingress": {
        "ingress": {
            **ENABLED,
            "className": "nginx",
            "hosts": ["iris.example.com", "iris.example.org"],
            "tls": [{"secretName": "front", "hosts": ["iris.example.com"]}],
        },
        "grpcIngress": {
            **ENABLED,
            "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "GRPC"},
        },
    },
    "routes": {
        "httpRoute": {
            **ENABLED,
            "parentRefs": GATEWAY,
            "hostnames": ["iris.example.com"],
            "timeouts": {"request": "60s"},
        },
        "grpcRoute": {
            **ENABLED,
            "annotations": {"a": "b"},
            "parentRefs": GATEWAY,
            "hostnames": ["grpc.example.com"],
            "matches": [{"method": {"service": "inference.GRPCInferenceService"}}],
            "filters": [
                {
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"remove": ["x-internal"]},
                }
            ],
        },
    },
    "hpa": HPA,
    "keda": KEDA,
    "budget": {
        "podDisruptionBudget": {**ENABLED, "maxUnavailable": None, "minAvailable": "50%"},
        "replicaCount": 2,
    },
    "policy": {
        "networkPolicy": {
            **ENABLED,
            "ingress": [{"namespaceSelector": {"matchLabels": {"team": "web"}}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 443}]}],
        }
    },
    "monitoring": {"monitoring": dict.fromkeys(("serviceMonitor", "rules", "dashboard"), ENABLED)},
    "pod monitor": {"monitoring": {"podMonitor": ENABLED}},
    "grpc probes": {"probeProtocol": "grpc"},
    "recreated": {"strategy": {"type": "Recreate"}, "replicaCount": 3},
    "account": {"serviceAccount": {"create": False, "name": "mine"}},
    "gpus": {"gpus": 2, "resources": {"requests": None, "limits": None}},
    "placement": {
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
    },
    "additions": {
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "iris"},
        "initContainers": [{"name": "first", "image": "busybox:1"}],
        "extraContainers": [{"name": "beside", "image": "busybox:1"}],
        "extraVolumes": [{"name": "cache", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "cache", "mountPath": "/var/cache"}],
    },
}

FEATURES["canary"] = {
    **FEATURES["routes"],
    "canary": {
        **ENABLED,
        "weight": 10,
        "header": {"name": "x-canary", "value": "yes"},
        "replicaCount": 3,
        "image": {"tag": "0.2.0"},
        "config": {"MODEL_VERSION": "2", "MAX_QUEUE_SIZE": 0},
        "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "canary"}],
    },
}


def merge_values(*names: str) -> Values:
    """Merge the values of several features."""
    values: Values = {}
    for name in names:
        values |= {
            key: {**values.get(key, {}), **value} if isinstance(value, dict) else value
            for key, value in FEATURES[name].items()
        }
    return values


# Features that exclude each other are in only one of the two combinations.
COMMON = (
    "image",
    "config",
    "keys",
    "service",
    "ingress",
    "canary",
    "budget",
    "policy",
    "placement",
)
FEATURES["all, behind TLS"] = merge_values(*COMMON, "tls", "fetched", "hpa", "monitoring")
FEATURES["all, in the clear"] = merge_values(
    *COMMON, "claimed", "keda", "pod monitor", "grpc probes"
)
