{{/* Parts of all pods: token, logs, security context. */}}

{{/* The CA for such a token is in every namespace from 1.20 on. Before 1.20 the cluster mounts its usual token. */}}
{{- define "accelshare.ownToken" -}}
{{- if semverCompare ">=1.20-0" .Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end }}

{{- define "accelshare.automount" -}}
automountServiceAccountToken: {{ not (include "accelshare.ownToken" .) }}
{{- end }}

{{/* The ServiceAccount's token as kubelet mounts it by default, but with our own lifetime. */}}
{{- define "accelshare.tokenVolume" -}}
{{- if include "accelshare.ownToken" . -}}
- name: token
  projected:
    defaultMode: 0444
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: {{ .Values.tokenExpirationSeconds }}
    - configMap:
        name: kube-root-ca.crt
        items:
        - {key: ca.crt, path: ca.crt}
    - downwardAPI:
        items:
        - path: namespace
          fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}
{{- end }}
{{- end }}

{{- define "accelshare.tokenMount" -}}
{{- if include "accelshare.ownToken" . -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}
{{- end }}

{{/* A field of 1.19. */}}
{{- define "accelshare.seccomp" -}}
{{- if semverCompare ">=1.19-0" .Capabilities.KubeVersion.Version -}}
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- end }}

{{/* No root, no capability, read-only root filesystem. OpenShift chooses the user itself. */}}
{{- define "accelshare.restrictedPod" -}}
runAsNonRoot: true
{{- if not (include "accelshare.openshift" .) }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
{{ include "accelshare.seccomp" . }}
{{- end }}

{{- define "accelshare.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Of pods that use the host's sockets and files: (list root values). */}}
{{- define "accelshare.hostPodSecurity" -}}
{{- include "accelshare.seccomp" (index . 0) }}
{{- with (index . 1).seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Of the agent's container: (list root privileged). */}}
{{- define "accelshare.agentSecurity" -}}
{{- $agent := (index . 0).Values.agent -}}
{{- $limits := $agent.limits | default dict -}}
runAsUser: 0
readOnlyRootFilesystem: true
{{- if index . 1 }}
# A vendor's tool or library opens device files that no container toolkit adds; only a privileged container can.
privileged: true
{{- else if and (ne (toString $limits.enabled) "false") (ne $agent.delivery "device-plugin") $limits.capabilities }}
# A driver that sets limits asks for them.
capabilities: {drop: [ALL], add: {{ $limits.capabilities | toJson }}}
{{- else }}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}
{{- end }}

{{/* A security context with the user's changes: (list text changes). */}}
{{- define "accelshare.changed" -}}
{{- if index . 1 -}}
{{- toYaml (mergeOverwrite (index . 0 | fromYaml) (index . 1)) -}}
{{- else -}}
{{- index . 0 -}}
{{- end -}}
{{- end }}

{{/* Annotations of a ServiceAccount, if there are any. */}}
{{- define "accelshare.accountAnnotations" -}}
{{- with . }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Flags for logs: (list root name). */}}
{{- define "accelshare.logFlags" -}}
{{- $logs := (index . 0).Values.logs -}}
- --log-level={{ $logs.level }}
- --log-format={{ $logs.format }}
{{- if $logs.directory }}
- --log-file={{ trimSuffix "/" $logs.directory }}/{{ index . 1 }}.log
- --log-file-mib={{ $logs.fileMib }}
- --log-files={{ $logs.files }}
{{- end }}
{{- end }}

{{- define "accelshare.logVolume" -}}
{{- with .Values.logs.directory }}
- name: logs
  hostPath: {path: {{ . | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- end }}

{{- define "accelshare.logMount" -}}
{{- with .Values.logs.directory }}
- name: logs
  mountPath: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "accelshare.profileData" -}}
{{- range $name, $text := .Values.profiles }}
{{ $name | quote }}: {{ toJson $text }}
{{- end }}
{{- end }}

{{- define "accelshare.profileFlag" -}}
{{- if .Values.profiles }}
- --profiles=/etc/accelshare/profiles
{{- end }}
{{- end }}

{{- define "accelshare.profileVolume" -}}
{{- if .Values.profiles }}
- name: profiles
  configMap: {name: accelshare-profiles}
{{- end }}
{{- end }}

{{- define "accelshare.profileMount" -}}
{{- if .Values.profiles }}
- name: profiles
  mountPath: /etc/accelshare/profiles
  readOnly: true
{{- end }}
{{- end }}

{{/* Restarts pods when their profiles change. */}}
{{- define "accelshare.profileSum" -}}
{{- with .Values.profiles }}
accelshare.io/profiles-sum: {{ toJson . | sha256sum | trunc 16 | quote }}
{{- end }}
{{- end }}
