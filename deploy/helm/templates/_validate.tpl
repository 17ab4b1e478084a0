{{/* Reject values that the schema accepts, but that do not work together. */}}
{{- define "service.validate" -}}
{{- include "service.validateRenamed" . -}}
{{- $own := list "HTTP_PORT" "GRPC_PORT" "DEVICES" "MODEL_DIR" "TLS_CERT_FILE" "TLS_KEY_FILE" "TLS_CLIENT_CA_FILE" "API_KEYS_FILE" -}}
{{- range .Values.extraEnv -}}
{{- if has .name $own -}}
{{- fail (printf "extraEnv: %s is reserved. The chart sets it from other values." .name) -}}
{{- else if not (kindIs "invalid" (index $.Values.config .name)) -}}
{{- fail (printf "extraEnv: %s is also in config. Set it only in config." .name) -}}
{{- end -}}
{{- end -}}
{{- $name := include "service.fullname" . -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- $expected := "Expected a lowercase letter, and then lowercase letters, digits or hyphens" -}}
{{- fail (printf "Service: invalid name. %s, got %s. Rename the release or set fullnameOverride." $expected $name) -}}
{{- end -}}
{{- if regexMatch "^(127\\.|::1$|localhost$)" (.Values.config.HOST | default "" | trim | lower) -}}
{{- fail (printf "config.HOST: a loopback address cannot be reached from outside the pod. Expected null (all addresses), got %s." .Values.config.HOST) -}}
{{- end -}}
{{- if eq (int .Values.service.httpPort) (int .Values.service.grpcPort) -}}
{{- fail (printf "service: httpPort and grpcPort are both %d. Expected different ports." (int .Values.service.httpPort)) -}}
{{- end -}}
{{- with .Values.strategy -}}
{{- $rolling := .rollingUpdate | default dict -}}
{{- $none := and (include "service.isNone" $rolling.maxSurge) (include "service.isNone" $rolling.maxUnavailable) -}}
{{- if and (eq .type "RollingUpdate") $none -}}
{{- fail "strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so that no pod can be replaced. Raise one of them." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.keda.enabled -}}
{{- fail "autoscaling and keda: both are enabled, and both set the number of replicas. Disable one." -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled (not .targetCPUUtilizationPercentage) (not .targetRequestsInFlight) -}}
{{- fail "autoscaling: missing target. Set targetCPUUtilizationPercentage, targetRequestsInFlight or both." -}}
{{- end -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas: greater than maxReplicas. Expected at most %d, got %d." (int .maxReplicas) (int .minReplicas)) -}}
{{- end -}}
{{- end -}}
{{- with .Values.keda -}}
{{- if and .enabled (not .prometheus.serverAddress) (not .targetCPUUtilizationPercentage) (not .triggers) -}}
{{- fail "keda: missing trigger. Set prometheus.serverAddress, targetCPUUtilizationPercentage or triggers." -}}
{{- end -}}
{{- if and .enabled (gt (int .minReplicaCount) (int .maxReplicaCount)) -}}
{{- fail (printf "keda.minReplicaCount: greater than maxReplicaCount. Expected at most %d, got %d." (int .maxReplicaCount) (int .minReplicaCount)) -}}
{{- end -}}
{{- $scraped := or $.Values.monitoring.serviceMonitor.enabled $.Values.monitoring.podMonitor.enabled -}}
{{- if and .enabled .prometheus.serverAddress (not .prometheus.query) (not $scraped) -}}
{{- fail "keda.prometheus: the default query needs a monitor. Enable monitoring.serviceMonitor or monitoring.podMonitor, or set query." -}}
{{- end -}}
{{- end -}}
{{- $resources := .Values.resources | default dict -}}
{{- if and .Values.gpus (hasKey ($resources.limits | default dict) "nvidia.com/gpu") -}}
{{- fail "gpus: resources.limits has nvidia.com/gpu, too. Set only gpus." -}}
{{- end -}}
{{- $cpu := or ($resources.requests | default dict).cpu ($resources.limits | default dict).cpu -}}
{{- range $name := list "autoscaling" "keda" -}}
{{- $scaler := index $.Values $name -}}
{{- if and $scaler.enabled $scaler.targetCPUUtilizationPercentage (not $cpu) -}}
{{- fail (printf "%s.targetCPUUtilizationPercentage: missing CPU request. Set resources.requests.cpu." $name) -}}
{{- end -}}
{{- end -}}
{{- if .Values.podDisruptionBudget.enabled -}}
{{- include "service.validateBudget" . -}}
{{- end -}}
{{- with .Values.startupProbe -}}
{{- $seconds := add (.initialDelaySeconds | default 0) (mul (.periodSeconds | default 10) (.failureThreshold | default 3)) -}}
{{- $deadline := int64 $.Values.progressDeadlineSeconds -}}
{{- if gt $seconds $deadline -}}
{{- fail (printf "progressDeadlineSeconds: less than startupProbe permits. Expected at least %d, got %d." $seconds $deadline) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.probeProtocol "grpc") .Values.tls.existingSecret -}}
{{- fail "probeProtocol: the kubelet does not support TLS in gRPC probes. Expected http with tls.existingSecret, got grpc." -}}
{{- end -}}
{{- if and .Values.model.persistentVolumeClaim.claimName .Values.model.initContainer.image -}}
{{- fail "model: persistentVolumeClaim.claimName and initContainer.image are both set, and both use /mnt/models. Unset one." -}}
{{- end -}}
{{- if and .Values.monitoring.serviceMonitor.enabled .Values.monitoring.podMonitor.enabled -}}
{{- fail "monitoring: serviceMonitor and podMonitor are both enabled, so that each pod counts twice. Disable one." -}}
{{- end -}}
{{- range $name := list "httpRoute" "grpcRoute" -}}
{{- $route := index $.Values $name -}}
{{- if and $route.enabled (not $route.parentRefs) -}}
{{- fail (printf "%s.parentRefs: missing Gateway. Set [{name: GATEWAY}]." $name) -}}
{{- end -}}
{{- end -}}
{{- $isRouted := or .Values.httpRoute.enabled .Values.grpcRoute.enabled -}}
{{- if and .Values.canary.enabled (or .Values.canary.weight .Values.canary.header) (not $isRouted) -}}
{{- fail "canary: weight and header need a route. Enable httpRoute or grpcRoute, or unset weight and header." -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled .Values.grpcRoute.enabled -}}
{{- include "service.validateRoutes" . -}}
{{- end -}}
{{- end -}}

{{/* Reject former names of values. The schema permits them, because its message would not contain the new name. */}}
{{- define "service.validateRenamed" -}}
{{- $renamed := dict
  "settings" "config"
  "probes.protocol" "probeProtocol"
  "probes.startup" "startupProbe"
  "probes.readiness" "readinessProbe"
  "probes.liveness" "livenessProbe"
  "apiKeys.secretName" "apiKeys.existingSecret"
  "tls.secretName" "tls.existingSecret"
  "networkPolicy.from" "networkPolicy.ingress"
-}}
{{- $errors := list -}}
{{- range $old, $new := $renamed -}}
{{- $path := splitList "." $old -}}
{{- $parent := eq (len $path) 1 | ternary $.Values (index $.Values (first $path)) -}}
{{- if hasKey ($parent | default dict) (last $path) -}}
{{- $errors = append $errors (printf "%s: renamed to %s" $old $new) -}}
{{- end -}}
{{- end -}}
{{- with $errors -}}
{{- fail (join "\n" .) -}}
{{- end -}}
{{- end -}}

{{/* "yes" if a number or percentage of pods is 0, otherwise empty. */}}
{{- define "service.isNone" -}}
{{- regexMatch "^0+%?$" (toString .) | ternary "yes" "" -}}
{{- end -}}

{{/* Reject a budget that permits no eviction. Kubernetes rounds percentages up. */}}
{{- define "service.validateBudget" -}}
{{- $least := int .Values.replicaCount -}}
{{- with .Values.autoscaling }}{{ if .enabled }}{{ $least = int .minReplicas }}{{ end }}{{ end -}}
{{- with .Values.keda }}{{ if .enabled }}{{ $least = int .minReplicaCount }}{{ end }}{{ end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if eq (has .maxUnavailable (list nil "")) (has .minAvailable (list nil "")) -}}
{{- fail "podDisruptionBudget: expected maxUnavailable or minAvailable, got both or neither. Set one, and null or \"\" for the other." -}}
{{- end -}}
{{- if include "service.isNone" .maxUnavailable -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: nodes could not be drained. Expected more than 0, got %v." .maxUnavailable) -}}
{{- end -}}
{{- $kept := int .minAvailable -}}
{{- if hasSuffix "%" (toString .minAvailable) -}}
{{- $kept = div (add 99 (mul $least (trimSuffix "%" .minAvailable | atoi))) 100 | int -}}
{{- end -}}
{{- if and $least (ge $kept $least) -}}
{{- $difference := printf "Expected less than the number of replicas (%d), got %v" $least .minAvailable -}}
{{- fail (printf "podDisruptionBudget.minAvailable: nodes could not be drained. %s. Lower it, add replicas or set maxUnavailable." $difference) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
A listener accepts one kind of route per host name. Two parentRefs can refer to the same listener unless they differ in
a field that both have.
*/}}
{{- define "service.validateRoutes" -}}
{{- $absent := dict "group" "gateway.networking.k8s.io" "kind" "Gateway" "namespace" .Release.Namespace -}}
{{- range $http := .Values.httpRoute.parentRefs -}}
{{- range $grpc := $.Values.grpcRoute.parentRefs -}}
{{- $differ := false -}}
{{- range list "group" "kind" "namespace" "name" "sectionName" "port" -}}
{{- $one := index $http . | default (index $absent .) -}}
{{- $other := index $grpc . | default (index $absent .) -}}
{{- $differ = or $differ (and $one $other (ne (toString $one) (toString $other))) -}}
{{- end -}}
{{- if not $differ -}}
{{- include "service.validateNames" (dict "root" $ "gateway" $http.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Reject host names of both routes that overlap at .gateway. "*.example.com" matches all names with this suffix, and an
empty list matches all names.
*/}}
{{- define "service.validateNames" -}}
{{- range $http := .root.Values.httpRoute.hostnames | default (list "*") -}}
{{- range $grpc := $.root.Values.grpcRoute.hostnames | default (list "*") -}}
{{- $covers := and (hasPrefix "*" $http) (hasSuffix (trimPrefix "*" $http) $grpc) -}}
{{- $isCovered := and (hasPrefix "*" $grpc) (hasSuffix (trimPrefix "*" $grpc) $http) -}}
{{- if or (eq $http $grpc) $covers $isCovered -}}
{{- $overlap := printf "%s overlaps with %s of httpRoute at Gateway %s" $grpc $http $.gateway -}}
{{- fail (printf "grpcRoute.hostnames: %s. Expected different host names for each kind of route." $overlap) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
