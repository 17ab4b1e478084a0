{{- define "service.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "service.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "service.labels" -}}
{{ include "service.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* A string as it stands, for a variable's value: Kubernetes would read "$" there as its own. */}}
{{- define "service.literal" -}}
{{- . | replace "$" "$$" | quote -}}
{{- end -}}

{{- define "service.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
{{- if .values.tls.secretName }}
  scheme: HTTPS
{{- end }}
{{- with .settings }}
{{ toYaml . }}
{{- end }}
{{- end -}}
