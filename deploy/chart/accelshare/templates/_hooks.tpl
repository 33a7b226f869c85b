{{/* A hook Job of an install, upgrade or uninstall. Its ServiceAccount and permissions exist only while it runs. */}}

{{/* Not empty if the chart has to do without hooks. Values of an older chart do not say it. */}}
{{- define "accelshare.noHooks" -}}
{{- if eq (toString .Values.hooks.enabled) "false" -}}true{{- end -}}
{{- end }}

{{- define "accelshare.hook" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The same for the Job itself. If it fails, newer helm versions print its log; else use kubectl logs. */}}
{{- define "accelshare.hookJob" -}}
{{ include "accelshare.hook" . }}
helm.sh/hook-output-log-policy: hook-failed
{{- end }}

{{/* (dict "root" . "name" N "hook" H): the parts of a pod template but its containers. */}}
{{- define "accelshare.hookPod" -}}
metadata:
  labels:
    {{- include "accelshare.labels" .root | nindent 4 }}
    {{- include "accelshare.component" "hook" | nindent 4 }}
spec:
  serviceAccountName: {{ .name }}
  {{- include "accelshare.automount" .root | nindent 2 }}
  restartPolicy: {{ .restartPolicy | default "Never" }}
  {{- include "accelshare.pullSecrets" .root | nindent 2 }}
  securityContext:
    {{- include "accelshare.restrictedPod" .root | nindent 4 }}
  {{- with .root.Values.extender.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .root.Values.extender.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.extender.tolerations }}
  tolerations:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  volumes:
  {{- include "accelshare.tokenVolume" .root | nindent 2 }}
{{- end }}

{{/* (list root name args): one container that calls accelshare. */}}
{{- define "accelshare.hookContainer" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}
  image: {{ include "accelshare.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  terminationMessagePolicy: FallbackToLogsOnError
  args:
  {{- range index . 2 }}
  - {{ toYaml . }}
  {{- end }}
  securityContext:
    {{- include "accelshare.restrictedContainer" $root | nindent 4 }}
  resources:
    {{- toYaml $root.Values.hooks.resources | nindent 4 }}
  volumeMounts:
  {{- include "accelshare.tokenMount" $root | nindent 2 }}
{{- end }}

{{- define "accelshare.certificateArgs" -}}
{{- $args := list "certificates" "ensure" (printf "--namespace=%s" .Release.Namespace) (printf "--service=%s" (include "accelshare.named" (list . .Values.extender.name))) -}}
{{- $args = concat $args (include "accelshare.certificateFlags" . | fromYamlArray) -}}
{{- $args | toJson -}}
{{- end }}
