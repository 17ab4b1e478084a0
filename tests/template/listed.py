"""The commands on pages that the tests do not execute."""

from __future__ import annotations

import re

UPGRADE = "helm upgrade open-inference-service deploy/helm --wait --timeout 10m --values iris.yaml"
# They need docker, a cluster, the template's address or packages. test_blocks.py checks them without running them.
LISTED = {
    "README.md": [
        "git clone TEMPLATE_URL cookiecutter-open-inference && cd cookiecutter-open-inference",
        "tools/bin/pip install cookiecutter",
        ".venv/bin/pip install --editable .",
        "docker build -f deploy/Dockerfile -t open-inference-service:0.1.0 .",
        "docker compose -f deploy/compose.yaml up",
        "helm install open-inference-service deploy/helm",
        "kubectl apply -f deploy/kserve/inferenceservice.yaml",
    ],
    "docs/batch-tools.md": [
        ".venv/bin/python -m pip install --editable '.[batch]'",
    ],
    "docs/deployment.md": [
        "docker build -f deploy/Dockerfile -t open-inference-service:0.1.0 .",
        "docker run --name inference --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \\\n"
        "    -p 127.0.0.1:8080:8080 -p 127.0.0.1:8081:8081 open-inference-service:0.1.0",
        "docker stop -t 45 inference",
        "CPUS=2 MEMORY=2g docker compose -f deploy/compose.yaml up --build",
        "docker build -f deploy/Dockerfile -t registry.example.com/inference:0.1.0 .",
        "docker push registry.example.com/inference:0.1.0",
        "helm install open-inference-service deploy/helm --wait --set image.repository=registry.example.com/inference",
        "kubectl apply -f deploy/kserve/inferenceservice.yaml",
    ],
    "docs/guides/canary.md": [
        "helm upgrade --install open-inference-service deploy/helm --wait --timeout 10m --values iris.yaml",
        f"{UPGRADE} --values canary.yaml",
        f"{UPGRADE} --values canary.yaml \\\n  --set canary.weight=50,canary.replicaCount=3",
        f"{UPGRADE} --values canary.yaml \\\n  --set canary.weight=50,canary.replicaCount=3,image.tag=0.2.0",
        f"{UPGRADE} --values canary.yaml \\\n  --set canary.weight=0",
        UPGRADE,
        "kubectl apply -f deploy/kserve/knative-rest.yaml",
        "kubectl get inferenceservice open-inference-service",
        "kubectl get inferenceservice open-inference-service \\\n"
        "  -o jsonpath='{.status.components.predictor.traffic[?(@.tag==\"latest\")].url}'",
    ],
    "docs/guides/gpus.md": [
        "docker run --rm --gpus all -e DEVICES=0,1 -p 127.0.0.1:8080:8080 -p 127.0.0.1:8081:8081 "
        "open-inference-service:0.1.0",
        "helm upgrade --install NAME deploy/helm --values gpus.yaml",
    ],
    "docs/guides/capture.md": ["helm upgrade --install NAME deploy/helm --values capture.yaml"],
    "docs/guides/images-and-audio.md": [
        'docker build -f deploy/Dockerfile --build-arg APT_PACKAGES="libgl1 libglib2.0-0t64" -t media:0.1.0 .',
    ],
    "docs/guides/large-models.md": [
        "helm upgrade --install NAME deploy/helm --values large-model.yaml"
    ],
    "docs/guides/secrets.md": [
        "kubectl create secret generic api-keys --from-file=keys.txt=secrets/keys.txt",
        "kubectl create secret generic weights-token --from-file=token=secrets/token.txt",
        "helm upgrade --install NAME deploy/helm --values my-values.yaml",
        "kubectl rollout restart deployment --selector app.kubernetes.io/instance=NAME",
    ],
    "docs/kserve.md": [
        "kubectl apply -f deploy/kserve/inferenceservice.yaml",
        "kubectl wait --for=condition=Ready inferenceservice/open-inference-service --timeout=5m",
        "kubectl delete inferenceservice open-inference-service",
        "kubectl port-forward deployment/open-inference-service-predictor 8080:8080 8081:8081",
        "SERVICE_HOST=$(kubectl get inferenceservice open-inference-service -o jsonpath='{.status.url}' | cut -d/ -f3)",
    ],
    "docs/monitoring.md": [".venv/bin/python -m pip install --editable '.[tracing]'"],
    "docs/page.md": [".venv/bin/pip install openapi-spec-validator"],
    "docs/releases.md": ["make lock", "make lock ARGS=--upgrade", "make lock EXTRAS=tracing"],
    "docs/tutorial.md": [
        "tools/bin/pip install cookiecutter",
        "docker build -f deploy/Dockerfile -t house-prices:0.1.0 .",
        "docker run --rm -p 127.0.0.1:8080:8080 -p 127.0.0.1:8081:8081 house-prices:0.1.0",
        "docker tag house-prices:0.1.0 registry.example.com/team/house-prices:0.1.0",
        "docker push registry.example.com/team/house-prices:0.1.0",
        "helm install house-prices deploy/helm --set image.repository=registry.example.com/team/house-prices --wait",
        "kubectl port-forward service/house-prices 8080:8080",
    ],
    "docs/upgrading.md": [
        "pip install cruft",
        "cruft update",
        "make lock",
        "cruft link TEMPLATE_URL --checkout COMMIT",
    ],
    "deploy/helm/README.md": [
        "kubectl create secret generic certificate --from-file tls.crt --from-file tls.key --from-file ca.crt",
        "kubectl create secret generic keys --from-file keys.txt",
        "helm install open-inference-service deploy/helm --wait --timeout 10m --values my-values.yaml",
        "helm test open-inference-service",
        "helm upgrade open-inference-service deploy/helm --wait --timeout 10m --values my-values.yaml",
        "helm rollback open-inference-service",
        "helm uninstall open-inference-service",
    ],
    "{{cookiecutter.project_slug}}/README.md": [
        "make conformance",
        "make lock",
        "docker build -f deploy/Dockerfile -t open-inference-service:0.1.0 .",
        "docker compose -f deploy/compose.yaml up",
        "helm install open-inference-service deploy/helm",
        "kubectl apply -f deploy/kserve/inferenceservice.yaml",
        "cruft check",
        "cruft diff",
        "cruft update",
    ],
}
# Docker, Kubernetes, the template's address, and installations of packages.
PERMITTED = re.compile(
    r"([A-Z]+=\S+ )*docker |([A-Z_]+=\$\()?kubectl |helm |cruft |git clone |make (lock|conformance)\b"
    r"|(\S+/python -m )?(\S+/)?pip install "
)
