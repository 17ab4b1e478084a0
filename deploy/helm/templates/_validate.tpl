{{/* Refuses what no schema can, or not in words. */}}
{{- define "service.validate" -}}
{{- $own := list "HTTP_PORT" "GRPC_PORT" "MODEL_DIR" "TLS_CERT" "TLS_KEY" "TLS_CLIENT_CA" "API_KEYS_FILE" -}}
{{- range .Values.extraEnv -}}
{{- if has .name $own -}}
{{- fail (printf "extraEnv: %s follows from other values, and is not for here" .name) -}}
{{- else if not (kindIs "invalid" (index $.Values.settings .name)) -}}
{{- fail (printf "extraEnv: %s is in settings; set it there" .name) -}}
{{- end -}}
{{- end -}}
{{- $name := include "service.fullname" . -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- fail (printf "%s: a Service's name begins with a letter, and has letters, digits and - only; name the release so, or give fullnameOverride" $name) -}}
{{- end -}}
{{- if regexMatch "^(127\\.|::1$|localhost$)" (.Values.settings.HOST | default "") -}}
{{- fail (printf "settings.HOST: at %s nobody reaches the pod; null is all addresses" .Values.settings.HOST) -}}
{{- end -}}
{{- if eq (int .Values.service.httpPort) (int .Values.service.grpcPort) -}}
{{- fail "service: httpPort and grpcPort are the same; a Service has a port once" -}}
{{- end -}}
{{- with .Values.strategy -}}
{{- $none := list "0" "0%" -}}
{{- $rolling := .rollingUpdate | default dict -}}
{{- if and (eq .type "RollingUpdate") (has (toString $rolling.maxSurge) $none) (has (toString $rolling.maxUnavailable) $none) -}}
{{- fail "strategy.rollingUpdate: with maxSurge and maxUnavailable 0 no pod could be replaced" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.keda.enabled -}}
{{- fail "autoscaling and keda: both are enabled, and each would set the replicas; enable one" -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled (not .targetCPUUtilizationPercentage) (not .targetRequestsInFlight) -}}
{{- fail "autoscaling: give targetCPUUtilizationPercentage, targetRequestsInFlight, or both" -}}
{{- end -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "autoscaling: minReplicas is more than maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- with .Values.keda -}}
{{- if and .enabled (not .prometheus.serverAddress) (not .targetCPUUtilizationPercentage) (not .triggers) -}}
{{- fail "keda: give prometheus.serverAddress, targetCPUUtilizationPercentage, or triggers" -}}
{{- end -}}
{{- if and .enabled (gt (int .minReplicaCount) (int .maxReplicaCount)) -}}
{{- fail "keda: minReplicaCount is more than maxReplicaCount" -}}
{{- end -}}
{{- $scraped := or $.Values.monitoring.serviceMonitor.enabled $.Values.monitoring.podMonitor.enabled -}}
{{- if and .enabled .prometheus.serverAddress (not .prometheus.query) (not $scraped) -}}
{{- fail "keda.prometheus: enable monitoring.serviceMonitor or podMonitor, whose series it asks for, or give a query of your own" -}}
{{- end -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if and .enabled (eq (kindIs "invalid" .maxUnavailable) (kindIs "invalid" .minAvailable)) -}}
{{- fail "podDisruptionBudget: give maxUnavailable or minAvailable, and null for the other" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.probes.protocol "grpc") .Values.tls.secretName -}}
{{- fail "probes.protocol: grpc does not go with tls.secretName, as the kubelet asks by gRPC without TLS only; take http" -}}
{{- end -}}
{{- if and .Values.model.persistentVolumeClaim.claimName .Values.model.initContainer.image -}}
{{- fail "model: give persistentVolumeClaim.claimName or initContainer.image; both would be at /mnt/models" -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled .Values.monitoring.podMonitor.enabled -}}
{{- fail "monitoring: serviceMonitor and podMonitor are both enabled, and each pod would count twice; enable one" -}}
{{- end -}}
{{- range $name := list "httpRoute" "grpcRoute" -}}
{{- $route := index $.Values $name -}}
{{- if and $route.enabled (not $route.parentRefs) -}}
{{- fail (printf "%s.parentRefs: name the Gateway that the route belongs to" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled .Values.grpcRoute.enabled -}}
{{- range .Values.grpcRoute.parentRefs -}}
{{- if and (has . $.Values.httpRoute.parentRefs) (not $.Values.httpRoute.hostnames) (not $.Values.grpcRoute.hostnames) -}}
{{- fail "hostnames: httpRoute and grpcRoute have the same parentRef and no names, and a listener takes one kind of route for a name" -}}
{{- end -}}
{{- end -}}
{{- range .Values.grpcRoute.hostnames -}}
{{- if has . $.Values.httpRoute.hostnames -}}
{{- fail (printf "hostnames: %s is of both httpRoute and grpcRoute, and a listener takes one kind of route for a name" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
