{{/* Refuses what no schema can, or not in words. */}}
{{- define "service.validate" -}}
{{- $own := list "HTTP_PORT" "GRPC_PORT" "MODEL_DIR" "TLS_CERT_FILE" "TLS_KEY_FILE" "TLS_CLIENT_CA_FILE" "API_KEYS_FILE" -}}
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
{{- if regexMatch "^(127\\.|::1$|localhost$)" (.Values.settings.HOST | default "" | trim | lower) -}}
{{- fail (printf "settings.HOST: at %s nobody reaches the pod; null is all addresses" .Values.settings.HOST) -}}
{{- end -}}
{{- if eq (int .Values.service.httpPort) (int .Values.service.grpcPort) -}}
{{- fail "service: httpPort and grpcPort are the same; a Service has a port once" -}}
{{- end -}}
{{- with .Values.strategy -}}
{{- $rolling := .rollingUpdate | default dict -}}
{{- $none := and (include "service.isNone" $rolling.maxSurge) (include "service.isNone" $rolling.maxUnavailable) -}}
{{- if and (eq .type "RollingUpdate") $none -}}
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
{{- $resources := .Values.resources | default dict -}}
{{- $cpu := or ($resources.requests | default dict).cpu ($resources.limits | default dict).cpu -}}
{{- range $name := list "autoscaling" "keda" -}}
{{- $scaler := index $.Values $name -}}
{{- if and $scaler.enabled $scaler.targetCPUUtilizationPercentage (not $cpu) -}}
{{- fail (printf "%s.targetCPUUtilizationPercentage: it is of resources.requests.cpu; give that" $name) -}}
{{- end -}}
{{- end -}}
{{- if .Values.podDisruptionBudget.enabled -}}
{{- include "service.validateBudget" . -}}
{{- end -}}
{{- with .Values.probes.startup -}}
{{- $seconds := add (.initialDelaySeconds | default 0) (mul (.periodSeconds | default 10) (.failureThreshold | default 3)) -}}
{{- $deadline := int64 $.Values.progressDeadlineSeconds -}}
{{- if gt $seconds $deadline -}}
{{- fail (printf "progressDeadlineSeconds: %d is less than the %d seconds that probes.startup allows; raise it" $deadline $seconds) -}}
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
{{- include "service.validateRoutes" . -}}
{{- end -}}
{{- end -}}

{{/* Whether a number or a percentage of pods is 0. */}}
{{- define "service.isNone" -}}
{{- regexMatch "^0+%?$" (toString .) | ternary "yes" "" -}}
{{- end -}}

{{/* Kubernetes rounds percentages up, those of minAvailable too. */}}
{{- define "service.validateBudget" -}}
{{- $least := int .Values.replicaCount -}}
{{- with .Values.autoscaling }}{{ if .enabled }}{{ $least = int .minReplicas }}{{ end }}{{ end -}}
{{- with .Values.keda }}{{ if .enabled }}{{ $least = int .minReplicaCount }}{{ end }}{{ end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if eq (has .maxUnavailable (list nil "")) (has .minAvailable (list nil "")) -}}
{{- fail "podDisruptionBudget: give maxUnavailable or minAvailable, and null or \"\" for the other" -}}
{{- end -}}
{{- if include "service.isNone" .maxUnavailable -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable: with %v no node could be drained; give 1 or more" .maxUnavailable) -}}
{{- end -}}
{{- $kept := int .minAvailable -}}
{{- if hasSuffix "%" (toString .minAvailable) -}}
{{- $kept = div (add 99 (mul $least (trimSuffix "%" .minAvailable | atoi))) 100 | int -}}
{{- end -}}
{{- if and $least (ge $kept $least) -}}
{{- $much := printf "%v of %d replicas" .minAvailable $least -}}
{{- fail (printf "podDisruptionBudget.minAvailable: with %s no node could be drained; give less of it, more replicas, or maxUnavailable" $much) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A listener takes one kind of route for a name. parentRefs may mean the same one unless they differ in what both say. */}}
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

{{/* Refuses names of both routes that meet at .gateway: "*.example.com" is all that ends so, and no names are all. */}}
{{- define "service.validateNames" -}}
{{- range $http := .root.Values.httpRoute.hostnames | default (list "*") -}}
{{- range $grpc := $.root.Values.grpcRoute.hostnames | default (list "*") -}}
{{- $covers := and (hasPrefix "*" $http) (hasSuffix (trimPrefix "*" $http) $grpc) -}}
{{- $isCovered := and (hasPrefix "*" $grpc) (hasSuffix (trimPrefix "*" $grpc) $http) -}}
{{- if or (eq $http $grpc) $covers $isCovered -}}
{{- $both := printf "httpRoute's %s and grpcRoute's %s meet at %s" $http $grpc $.gateway -}}
{{- fail (printf "hostnames: %s, where a name is for one kind of route; give each names of its own" $both) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
