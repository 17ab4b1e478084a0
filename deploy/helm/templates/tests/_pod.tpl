{{/* Pod of `helm test`: runs tests/ask_KIND.py in the service's image, against the Service's .port. */}}
{{- define "service.testPod" -}}
{{- $secret := .root.Values.tls.existingSecret -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "service.fullname" .root }}-test-{{ .kind }}
  labels:
    {{- include "service.testLabels" .root | nindent 4 }}
    {{- include "service.commonLabels" .root | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation
    checkov.io/skip1: CKV_K8S_8=The pod sends one request and ends. A liveness probe is not necessary.
    checkov.io/skip2: CKV_K8S_9=The pod does not receive requests.
spec:
  {{- include "service.pod" .root | nindent 2 }}
  restartPolicy: Never
  containers:
    - name: test
      image: {{ include "service.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [python, -c]
      args:
        - |
          {{- .root.Files.Get (printf "tests/ask_%s.py" .kind) | trim | nindent 10 }}
      env:
        - name: ADDRESS
          value: {{ printf "%s:%v" (include "service.host" .root) .port | quote }}
        {{- if $secret }}
        - name: SERVER_NAME
          value: {{ include "service.serverName" .root | quote }}
        - name: CERTIFICATES
          value: /etc/service/certificates
        {{- end }}
      resources:
        requests: {cpu: 100m, memory: 128Mi, ephemeral-storage: 16Mi}
        limits: {cpu: 500m, memory: 256Mi, ephemeral-storage: 64Mi}
      {{- with .root.Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $secret }}
      volumeMounts:
        - name: certificates
          mountPath: /etc/service/certificates
          readOnly: true
      {{- end }}
  {{- if $secret }}
  volumes:
    - name: certificates
      secret:
        secretName: {{ $secret | quote }}
        optional: true  # some Secrets do not contain ca.crt
        items:
          - key: tls.crt
            path: tls.crt
          - key: ca.crt
            path: ca.crt
  {{- end }}
{{- end -}}
