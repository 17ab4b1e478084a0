{{/* Names, labels and parts of manifests that several templates share. */}}

{{- define "service.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimAll "-._" -}}
{{- end -}}

{{/*
Full name of the release's objects. Truncate to 53 of 63 characters, because suffixes such as
"-dashboard" follow. Remove characters that are invalid at the end of a name.
*/}}
{{- define "service.fullname" -}}
{{- $name := include "service.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimAll "-._" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimAll "-._" -}}
{{- end -}}
{{- end -}}

{{- define "service.canaryName" -}}
{{- include "service.fullname" . | trunc 46 | trimAll "-._" }}-canary
{{- end -}}

{{- define "service.selectorLabels" -}}
app.kubernetes.io/name: {{ include "service.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of the pods of `helm test`. Selectors of the service must not match them. */}}
{{- define "service.testLabels" -}}
app.kubernetes.io/name: {{ include "service.name" . | trunc 58 | trimAll "-._" }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* appVersion, with characters that are valid in labels and image tags. */}}
{{- define "service.version" -}}
{{- .Chart.AppVersion | replace "+" "_" -}}
{{- end -}}

{{- define "service.commonLabels" -}}
app.kubernetes.io/version: {{ include "service.version" . | trunc 63 | trimAll "-._" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Name and version of the chart, with characters that are valid in labels. */}}
{{- define "service.chartLabel" -}}
{{- $chart := printf "%s-%s" .Chart.Name .Chart.Version -}}
{{- $chart | replace "+" "_" | trunc 63 | trimAll "-._" -}}
{{- end -}}

{{/*
Metadata of an object: .name, or the full name and .suffix, and additional .labels and
.annotations.
*/}}
{{- define "service.metadata" -}}
{{- $suffix := .suffix | default "" -}}
{{- $name := .name | default (print (include "service.fullname" .root) $suffix) -}}
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "service.selectorLabels" .root | nindent 4 }}
    {{- include "service.commonLabels" .root | nindent 4 }}
    helm.sh/chart: {{ include "service.chartLabel" .root }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The account "default" exists in every namespace. */}}
{{- define "service.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- include "service.fullname" . -}}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{/* Reference of the image, quoted. A digest takes precedence over a tag. */}}
{{- define "service.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest | quote -}}
{{- else -}}
{{- $tag := $image.tag | default (include "service.version" .) -}}
{{- printf "%s:%s" $image.repository $tag | quote -}}
{{- end -}}
{{- end -}}

{{/* DNS name of the Service, valid in any namespace. */}}
{{- define "service.host" -}}
{{- include "service.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Name in the certificate of the service. */}}
{{- define "service.serverName" -}}
{{- .Values.tls.serverName | default (include "service.host" .) -}}
{{- end -}}

{{/* Directory of a model that is not in the image, otherwise empty. */}}
{{- define "service.modelFolder" -}}
{{- with .Values.model -}}
{{- if or .persistentVolumeClaim.claimName .initContainer.image -}}
/mnt/models
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Protocols of the ports, for proxies that read them from the Service. */}}
{{- define "service.httpProtocol" -}}
{{- if .Values.tls.existingSecret -}}
https
{{- else -}}
http
{{- end -}}
{{- end -}}

{{- define "service.grpcProtocol" -}}
{{- if .Values.tls.existingSecret -}}
https
{{- else -}}
kubernetes.io/h2c
{{- end -}}
{{- end -}}

{{/* Fields of both Services: selector and IP families. */}}
{{- define "service.pods" -}}
selector:
  {{- include "service.selectorLabels" . | nindent 2 }}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Text as the value of an environment variable. "$$" prevents expansion by Kubernetes. */}}
{{- define "service.literal" -}}
{{- . | replace "$" "$$" | quote -}}
{{- end -}}

{{/*
Environment variables of the settings, without those that are null. toJson writes large numbers
without an exponent, unlike quote.
*/}}
{{- define "service.config" -}}
{{- range $name, $value := .Values.config }}
{{- if kindIs "string" $value }}
- name: {{ $name }}
  value: {{ include "service.literal" $value }}
{{- else if not (kindIs "invalid" $value) }}
- name: {{ $name }}
  value: {{ toJson $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Resources of the service, with the limit for .Values.gpus. */}}
{{- define "service.resources" -}}
{{- $resources := .Values.resources | default dict | deepCopy -}}
{{- with .Values.gpus -}}
{{- $_ := merge $resources (dict "limits" (dict "nvidia.com/gpu" .)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Fields of the service's pods and the pods of `helm test`. */}}
{{- define "service.pod" -}}
serviceAccountName: {{ include "service.serviceAccountName" . | quote }}
automountServiceAccountToken: false
# Otherwise, a Service named "http" in the namespace sets HTTP_PORT to tcp://...
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Probe over .protocol, with the times in .values. */}}
{{- define "service.probe" -}}
{{- if eq .protocol "grpc" -}}
grpc:
  port: 8081
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.tls.existingSecret }}
  scheme: HTTPS
  {{- end }}
{{- end }}
{{- with .values }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Ingress from .values to the Service's .port. Without hosts, one rule accepts all of them. */}}
{{- define "service.ingress" -}}
{{- $annotations := .values.annotations -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
{{ include "service.metadata" (dict "root" .root "suffix" .suffix "annotations" $annotations) }}
spec:
  {{- with .values.className }}
  ingressClassName: {{ . | quote }}
  {{- end }}
  {{- with .values.tls }}
  tls:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    {{- range .values.hosts | default (list "") }}
    - http:
        paths:
          {{- range $.values.paths }}
          - path: {{ . | quote }}
            pathType: Prefix
            backend:
              service:
                name: {{ include "service.fullname" $.root | quote }}
                port:
                  name: {{ $.port }}
          {{- end }}
      {{- with . }}
      host: {{ . | quote }}
      {{- end }}
    {{- end }}
{{- end -}}

{{/*
Spec of a route from .values to the .port of the Service and of the canary's Service.

With a canary, the rule splits its requests by weight. If the canary has a header, a rule before
this one sends requests with the header to the canary.
*/}}
{{- define "service.route" -}}
{{- $backend := dict "name" (include "service.fullname" .root) "port" .port -}}
{{- $canaryBackend := dict "name" (include "service.canaryName" .root) "port" .port -}}
{{- $rule := dict "backendRefs" (list $backend) -}}
{{- range $field := list "matches" "filters" "timeouts" -}}
  {{- with index $.values $field -}}
    {{- $_ := set $rule $field . -}}
  {{- end -}}
{{- end -}}
{{- $rules := list $rule -}}
{{- with .root.Values.canary -}}
{{- if .enabled -}}
  {{- $header := .header -}}
  {{- if $header -}}
    {{- $matches := list -}}
    {{- /* A rule without matches accepts every request. */ -}}
    {{- range $match := $.values.matches | default (list dict) -}}
      {{- $headers := append ($match.headers | default list) $header -}}
      {{- $matches = append $matches (set (omit $match "headers") "headers" $headers) -}}
    {{- end -}}
    {{- $canaryRule := dict "backendRefs" (list $canaryBackend) "matches" $matches -}}
    {{- $rules = prepend $rules (merge $canaryRule $rule) -}}
  {{- end -}}
  {{- $_ := set $backend "weight" (sub 100 .weight) -}}
  {{- $weighted := merge (dict "weight" (int64 .weight)) $canaryBackend -}}
  {{- $_ := set $rule "backendRefs" (list $backend $weighted) -}}
{{- end -}}
{{- end -}}
parentRefs:
  {{- toYaml .values.parentRefs | nindent 2 }}
{{- with .values.hostnames }}
hostnames:
  {{- toYaml . | nindent 2 }}
{{- end }}
rules:
  {{- toYaml $rules | nindent 2 }}
{{- end -}}

{{/* Endpoint of a monitor for /metrics. .values.endpoint overrides its fields. */}}
{{- define "service.endpoint" -}}
{{- $endpoint := dict "port" "http" "path" "/metrics" "interval" .values.interval -}}
{{- if .root.Values.tls.existingSecret -}}
  {{- $_ := set $endpoint "scheme" "https" -}}
  {{- $tlsConfig := dict "serverName" (include "service.serverName" .root) -}}
  {{- $_ := set $endpoint "tlsConfig" $tlsConfig -}}
{{- end -}}
{{- $endpoint = mergeOverwrite $endpoint (.values.endpoint | default dict) -}}
{{- toYaml (list $endpoint) -}}
{{- end -}}

{{/* Label matchers for the release's metrics. Both monitors use the Service's name as job. */}}
{{- define "service.series" -}}
{{- printf "job=%q, namespace=%q" (include "service.fullname" .) .Release.Namespace -}}
{{- end -}}
