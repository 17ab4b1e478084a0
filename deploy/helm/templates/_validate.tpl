{{/*
Rejection of values that the schema accepts, but that do not work together. One template checks one
topic. A template renders nothing, or fails with the first problem.
*/}}

{{- define "service.validate" -}}
{{- include "service.validateRenamed" . -}}
{{- include "service.validateEnvironment" . -}}
{{- include "service.validateName" . -}}
{{- include "service.validateAddresses" . -}}
{{- include "service.validateStrategy" . -}}
{{- include "service.validateAutoscaling" . -}}
{{- include "service.validateKeda" . -}}
{{- include "service.validateResources" . -}}
{{- include "service.validateBudget" . -}}
{{- include "service.validateProbes" . -}}
{{- include "service.validateModel" . -}}
{{- include "service.validateMonitoring" . -}}
{{- include "service.validateRoutes" . -}}
{{- end -}}

{{/*
Reject former names of values. The schema permits them, because its message would not contain the
new name.
*/}}
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
  {{- $parent := $.Values -}}
  {{- if eq (len $path) 2 -}}
    {{- $parent = index $.Values (first $path) | default dict -}}
  {{- end -}}
  {{- if hasKey $parent (last $path) -}}
    {{- $errors = append $errors (printf "%s: renamed to %s" $old $new) -}}
  {{- end -}}
{{- end -}}
{{- with $errors -}}
  {{- fail (join "\n" .) -}}
{{- end -}}
{{- end -}}

{{/* Reject variables that the chart also sets. */}}
{{- define "service.validateEnvironment" -}}
{{- $reserved := list
  "HTTP_PORT"
  "GRPC_PORT"
  "DEVICES"
  "MODEL_DIR"
  "TLS_CERT_FILE"
  "TLS_KEY_FILE"
  "TLS_CLIENT_CA_FILE"
  "API_KEYS_FILE"
-}}
{{- range .Values.extraEnv -}}
  {{- if has .name $reserved -}}
    {{- fail (printf "extraEnv: %s is reserved. The chart sets it from other values." .name) -}}
  {{- end -}}
  {{- $isInConfig := not (kindIs "invalid" (index $.Values.config .name)) -}}
  {{- if $isInConfig -}}
    {{- fail (printf "extraEnv: %s is also in config. Set it only in config." .name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Reject a name that is invalid for a Service. It may come from the name of the release. */}}
{{- define "service.validateName" -}}
{{- $name := include "service.fullname" . -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
  {{- $expected := "a lowercase letter, and then lowercase letters, digits or hyphens" -}}
  {{- $remedy := "Rename the release or set fullnameOverride" -}}
  {{- fail (printf "Service: invalid name. Expected %s, got %s. %s." $expected $name $remedy) -}}
{{- end -}}
{{- end -}}

{{- define "service.validateAddresses" -}}
{{- $host := .Values.config.HOST | default "" | trim | lower -}}
{{- if regexMatch "^(127\\.|::1$|localhost$)" $host -}}
  {{- $problem := "a loopback address cannot be reached from outside the pod" -}}
  {{- $expected := printf "0.0.0.0 or ::, got %s" .Values.config.HOST -}}
  {{- fail (printf "config.HOST: %s. Expected %s." $problem $expected) -}}
{{- end -}}
{{- $port := int .Values.service.httpPort -}}
{{- if eq $port (int .Values.service.grpcPort) -}}
  {{- $problem := printf "httpPort and grpcPort are both %d" $port -}}
  {{- fail (printf "service: %s. Expected different ports." $problem) -}}
{{- end -}}
{{- end -}}

{{- define "service.validateStrategy" -}}
{{- with .Values.strategy -}}
  {{- $rolling := .rollingUpdate | default dict -}}
  {{- $hasNoSurge := include "service.isNone" $rolling.maxSurge -}}
  {{- $hasNoUnavailable := include "service.isNone" $rolling.maxUnavailable -}}
  {{- if and (eq .type "RollingUpdate") $hasNoSurge $hasNoUnavailable -}}
    {{- $problem := "maxSurge and maxUnavailable are both 0, so that no pod can be replaced" -}}
    {{- fail (printf "strategy.rollingUpdate: %s. Raise one of them." $problem) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* "yes" if a number or percentage of pods is 0, otherwise empty. */}}
{{- define "service.isNone" -}}
{{- if regexMatch "^0+%?$" (toString .) -}}
yes
{{- end -}}
{{- end -}}

{{- define "service.validateAutoscaling" -}}
{{- if and .Values.autoscaling.enabled .Values.keda.enabled -}}
  {{- $problem := "both are enabled, and both set the number of replicas" -}}
  {{- fail (printf "autoscaling and keda: %s. Disable one." $problem) -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
  {{- if not (or .targetCPUUtilizationPercentage .targetRequestsInFlight) -}}
    {{- $remedy := "Set targetCPUUtilizationPercentage, targetRequestsInFlight or both" -}}
    {{- fail (printf "autoscaling: missing target. %s." $remedy) -}}
  {{- end -}}
  {{- if gt (int .minReplicas) (int .maxReplicas) -}}
    {{- $expected := printf "at most %d, got %d" (int .maxReplicas) (int .minReplicas) -}}
    {{- $problem := "autoscaling.minReplicas: greater than maxReplicas" -}}
    {{- fail (printf "%s. Expected %s." $problem $expected) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "service.validateKeda" -}}
{{- with .Values.keda -}}
{{- if .enabled -}}
  {{- if not (or .prometheus.serverAddress .targetCPUUtilizationPercentage .triggers) -}}
    {{- $remedy := "Set prometheus.serverAddress, targetCPUUtilizationPercentage or triggers" -}}
    {{- fail (printf "keda: missing trigger. %s." $remedy) -}}
  {{- end -}}
  {{- if gt (int .minReplicaCount) (int .maxReplicaCount) -}}
    {{- $expected := printf "at most %d, got %d" (int .maxReplicaCount) (int .minReplicaCount) -}}
    {{- $problem := "keda.minReplicaCount: greater than maxReplicaCount" -}}
    {{- fail (printf "%s. Expected %s." $problem $expected) -}}
  {{- end -}}
  {{- $monitoring := $.Values.monitoring -}}
  {{- $isMonitored := or $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled -}}
  {{- $hasDefaultQuery := and .prometheus.serverAddress (not .prometheus.query) -}}
  {{- if and $hasDefaultQuery (not $isMonitored) -}}
    {{- $remedy := "Enable monitoring.serviceMonitor or monitoring.podMonitor, or set query" -}}
    {{- fail (printf "keda.prometheus: the default query needs a monitor. %s." $remedy) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "service.validateResources" -}}
{{- $resources := .Values.resources | default dict -}}
{{- $requests := $resources.requests | default dict -}}
{{- $limits := $resources.limits | default dict -}}
{{- if and .Values.gpus (hasKey $limits "nvidia.com/gpu") -}}
  {{- fail "gpus: resources.limits has nvidia.com/gpu, too. Set only gpus." -}}
{{- end -}}
{{- /* Utilization is a percentage of the request, which defaults to the limit. */ -}}
{{- $cpu := or $requests.cpu $limits.cpu -}}
{{- range $name := list "autoscaling" "keda" -}}
  {{- $scaler := index $.Values $name -}}
  {{- if and $scaler.enabled $scaler.targetCPUUtilizationPercentage (not $cpu) -}}
    {{- $problem := printf "%s.targetCPUUtilizationPercentage: missing CPU request" $name -}}
    {{- fail (printf "%s. Set resources.requests.cpu." $problem) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Reject a budget that permits no eviction. Kubernetes rounds percentages up. */}}
{{- define "service.validateBudget" -}}
{{- $replicas := include "service.minReplicas" . | int -}}
{{- with .Values.podDisruptionBudget -}}
{{- if .enabled -}}
  {{- $absent := list nil "" -}}
  {{- if eq (has .maxUnavailable $absent) (has .minAvailable $absent) -}}
    {{- $problem := "expected maxUnavailable or minAvailable, got both or neither" -}}
    {{- $remedy := "Set one, and null or \"\" for the other" -}}
    {{- fail (printf "podDisruptionBudget: %s. %s." $problem $remedy) -}}
  {{- end -}}
  {{- if include "service.isNone" .maxUnavailable -}}
    {{- $problem := "podDisruptionBudget.maxUnavailable: nodes could not be drained" -}}
    {{- fail (printf "%s. Expected more than 0, got %v." $problem .maxUnavailable) -}}
  {{- end -}}
  {{- $minAvailable := int .minAvailable -}}
  {{- if hasSuffix "%" (toString .minAvailable) -}}
    {{- $percentage := trimSuffix "%" .minAvailable | atoi -}}
    {{- $minAvailable = div (add 99 (mul $replicas $percentage)) 100 | int -}}
  {{- end -}}
  {{- if and $replicas (ge $minAvailable $replicas) -}}
    {{- $problem := "podDisruptionBudget.minAvailable: nodes could not be drained" -}}
    {{- $limit := printf "the number of replicas (%d)" $replicas -}}
    {{- $remedy := "Lower it, add replicas or set maxUnavailable" -}}
    {{- fail (printf "%s. Expected less than %s, got %v. %s."
      $problem $limit .minAvailable $remedy) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The lowest number of replicas that the enabled autoscaler permits. */}}
{{- define "service.minReplicas" -}}
{{- if .Values.keda.enabled -}}
{{- int .Values.keda.minReplicaCount -}}
{{- else if .Values.autoscaling.enabled -}}
{{- int .Values.autoscaling.minReplicas -}}
{{- else -}}
{{- int .Values.replicaCount -}}
{{- end -}}
{{- end -}}

{{- define "service.validateProbes" -}}
{{- with .Values.startupProbe -}}
  {{- $period := .periodSeconds | default 10 -}}
  {{- $failures := .failureThreshold | default 3 -}}
  {{- $seconds := add (.initialDelaySeconds | default 0) (mul $period $failures) -}}
  {{- $deadline := int64 $.Values.progressDeadlineSeconds -}}
  {{- if gt $seconds $deadline -}}
    {{- $problem := "progressDeadlineSeconds: less than startupProbe permits" -}}
    {{- fail (printf "%s. Expected at least %d, got %d." $problem $seconds $deadline) -}}
  {{- end -}}
{{- end -}}
{{- if and (eq .Values.probeProtocol "grpc") .Values.tls.existingSecret -}}
  {{- $problem := "the kubelet does not support TLS in gRPC probes" -}}
  {{- $expected := "http with tls.existingSecret, got grpc" -}}
  {{- fail (printf "probeProtocol: %s. Expected %s." $problem $expected) -}}
{{- end -}}
{{- end -}}

{{- define "service.validateModel" -}}
{{- with .Values.model -}}
  {{- if and .persistentVolumeClaim.claimName .initContainer.image -}}
    {{- $subject := "model: persistentVolumeClaim.claimName and initContainer.image" -}}
    {{- fail (printf "%s are both set, and both use /mnt/models. Unset one." $subject) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "service.validateMonitoring" -}}
{{- with .Values.monitoring -}}
  {{- if and .serviceMonitor.enabled .podMonitor.enabled -}}
    {{- $problem := "serviceMonitor and podMonitor are both enabled" -}}
    {{- fail (printf "monitoring: %s, so that each pod counts twice. Disable one." $problem) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "service.validateRoutes" -}}
{{- $http := .Values.httpRoute -}}
{{- $grpc := .Values.grpcRoute -}}
{{- range $name := list "httpRoute" "grpcRoute" -}}
  {{- $route := index $.Values $name -}}
  {{- if and $route.enabled (not $route.parentRefs) -}}
    {{- fail (printf "%s.parentRefs: missing Gateway. Set [{name: GATEWAY}]." $name) -}}
  {{- end -}}
{{- end -}}
{{- with .Values.canary -}}
  {{- $needsRoute := and .enabled (or .weight .header) -}}
  {{- if and $needsRoute (not (or $http.enabled $grpc.enabled)) -}}
    {{- $remedy := "Enable httpRoute or grpcRoute, or unset weight and header" -}}
    {{- fail (printf "canary: weight and header need a route. %s." $remedy) -}}
  {{- end -}}
{{- end -}}
{{- if and $http.enabled $grpc.enabled -}}
  {{- include "service.validateListeners" . -}}
{{- end -}}
{{- end -}}

{{/*
A listener accepts one kind of route per host name. Two parentRefs can refer to the same listener
unless they differ in a field that both have.
*/}}
{{- define "service.validateListeners" -}}
{{- $defaults := dict
  "group" "gateway.networking.k8s.io"
  "kind" "Gateway"
  "namespace" .Release.Namespace
-}}
{{- range $http := .Values.httpRoute.parentRefs -}}
{{- range $grpc := $.Values.grpcRoute.parentRefs -}}
  {{- $differ := false -}}
  {{- range $field := list "group" "kind" "namespace" "name" "sectionName" "port" -}}
    {{- $default := index $defaults $field -}}
    {{- $httpField := index $http $field | default $default -}}
    {{- $grpcField := index $grpc $field | default $default -}}
    {{- $bothHaveIt := and $httpField $grpcField -}}
    {{- if and $bothHaveIt (ne (toString $httpField) (toString $grpcField)) -}}
      {{- $differ = true -}}
    {{- end -}}
  {{- end -}}
  {{- if not $differ -}}
    {{- include "service.validateHostnames" (dict "root" $ "gateway" $http.name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Reject host names of both routes that overlap at .gateway. "*.example.com" matches all names with
this suffix, and an empty list matches all names.
*/}}
{{- define "service.validateHostnames" -}}
{{- range $http := .root.Values.httpRoute.hostnames | default (list "*") -}}
{{- range $grpc := $.root.Values.grpcRoute.hostnames | default (list "*") -}}
  {{- $httpCovers := and (hasPrefix "*" $http) (hasSuffix (trimPrefix "*" $http) $grpc) -}}
  {{- $grpcCovers := and (hasPrefix "*" $grpc) (hasSuffix (trimPrefix "*" $grpc) $http) -}}
  {{- if or (eq $http $grpc) $httpCovers $grpcCovers -}}
    {{- $overlap := printf "%s overlaps with %s of httpRoute" $grpc $http -}}
    {{- $expected := "different host names for each kind of route" -}}
    {{- fail (printf "grpcRoute.hostnames: %s at Gateway %s. Expected %s."
      $overlap $.gateway $expected) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
