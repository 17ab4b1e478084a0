{{- define "service.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimAll "-._" -}}
{{- end -}}

{{/* 53 of a name's 63 characters: "-dashboard" and others are added to it. A cut may leave what no name or label ends with. */}}
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

{{- define "service.selectorLabels" -}}
app.kubernetes.io/name: {{ include "service.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The labels of the pods of `helm test`, to which no selector of the service leads. */}}
{{- define "service.testLabels" -}}
app.kubernetes.io/name: {{ include "service.name" . | trunc 58 | trimAll "-._" }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* As labels and tags of images take it. */}}
{{- define "service.version" -}}
{{- .Chart.AppVersion | replace "+" "_" -}}
{{- end -}}

{{- define "service.commonLabels" -}}
app.kubernetes.io/version: {{ include "service.version" . | trunc 63 | trimAll "-._" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The metadata of an object: its .name or a .suffix to it, and .labels and .annotations that the values add. */}}
{{- define "service.metadata" -}}
metadata:
  name: {{ .name | default (printf "%s%s" (include "service.fullname" .root) (.suffix | default "")) | quote }}
  labels:
    {{- include "service.selectorLabels" .root | nindent 4 }}
    {{- include "service.commonLabels" .root | nindent 4 }}
    helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimAll "-._" }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "service.serviceAccountName" -}}
{{- $name := .Values.serviceAccount.create | ternary (include "service.fullname" .) "default" -}}
{{- .Values.serviceAccount.name | default $name -}}
{{- end -}}

{{- define "service.image" -}}
{{- $tag := printf ":%s" (.Values.image.tag | default (include "service.version" .)) -}}
{{- $digest := printf "@%s" .Values.image.digest -}}
{{- printf "%s%s" .Values.image.repository (empty .Values.image.digest | ternary $tag $digest) | quote -}}
{{- end -}}

{{/* Where the Service is, for the pods of any namespace. */}}
{{- define "service.host" -}}
{{- include "service.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The name that its certificate is for. */}}
{{- define "service.serverName" -}}
{{- .Values.tls.serverName | default (include "service.host" .) -}}
{{- end -}}

{{/* Where the model is that is not in the image. */}}
{{- define "service.modelFolder" -}}
{{- if or .Values.model.persistentVolumeClaim.claimName .Values.model.initContainer.image -}}
/mnt/models
{{- end -}}
{{- end -}}

{{/* What both Services have in common: the pods, and the families of addresses. */}}
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

{{/* A string as it stands, for a variable's value: Kubernetes would read "$" there as its own. */}}
{{- define "service.literal" -}}
{{- . | replace "$" "$$" | quote -}}
{{- end -}}

{{/* The settings' variables; toJson leaves a number as it is, where quote would give it an exponent. */}}
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

{{/* What the service's pods and those of `helm test` have in common. */}}
{{- define "service.pod" -}}
serviceAccountName: {{ include "service.serviceAccountName" . | quote }}
automountServiceAccountToken: false
# A Service called "http" in the namespace would else set HTTP_PORT, to tcp://...
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

{{/* A probe of .protocol; .values are its times. */}}
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

{{/* An Ingress by .values, to the Service's .port. */}}
{{- define "service.ingress" -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
{{ include "service.metadata" (dict "root" .root "suffix" .suffix "annotations" .values.annotations) }}
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

{{/* The spec of a route by .values, to the Service's .port. */}}
{{- define "service.route" -}}
parentRefs:
  {{- toYaml .values.parentRefs | nindent 2 }}
{{- with .values.hostnames }}
hostnames:
  {{- toYaml . | nindent 2 }}
{{- end }}
rules:
  - backendRefs:
      - name: {{ include "service.fullname" .root | quote }}
        port: {{ .port }}
    {{- with .values.matches }}
    matches:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .values.filters }}
    filters:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .values.timeouts }}
    timeouts:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}

{{/* /metrics as a monitor scrapes it; .values.endpoint has the last word. */}}
{{- define "service.endpoint" -}}
{{- $endpoint := dict "port" "http" "path" "/metrics" "interval" .values.interval -}}
{{- if .root.Values.tls.existingSecret -}}
{{- $_ := merge $endpoint (dict "scheme" "https" "tlsConfig" (dict "serverName" (include "service.serverName" .root))) -}}
{{- end -}}
{{- toYaml (list (mergeOverwrite $endpoint (.values.endpoint | default dict))) -}}
{{- end -}}

{{/* The series of this release alone: the ServiceMonitor's job is the Service, and the PodMonitor's the same. */}}
{{- define "service.series" -}}
{{- printf "job=%q, namespace=%q" (include "service.fullname" .) .Release.Namespace -}}
{{- end -}}
