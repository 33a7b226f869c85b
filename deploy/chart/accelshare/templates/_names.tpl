{{/* Names, labels, the image. */}}

{{- define "accelshare.labels" -}}
app.kubernetes.io/part-of: accelshare
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "accelshare.component" -}}
app.kubernetes.io/name: accelshare
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* The selector labels of a workload: (list root component). They must not change between versions. */}}
{{- define "accelshare.selector" -}}
{{ include "accelshare.component" (index . 1) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- end }}

{{/* The name of a part: (list root name). nameOverride or fullnameOverride replaces accelshare at its beginning. */}}
{{- define "accelshare.named" -}}
{{- $values := (index . 0).Values -}}
{{- $prefix := $values.fullnameOverride | default $values.nameOverride -}}
{{- if $prefix -}}
{{ regexReplaceAll "^accelshare-" (index . 1) (printf "%s-" $prefix) }}
{{- else -}}
{{ index . 1 }}
{{- end -}}
{{- end }}

{{- define "accelshare.image" -}}
{{- $repository := .Values.image.repository -}}
{{- with (.Values.global | default dict).imageRegistry -}}{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}{{- end -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "accelshare.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The value of the user, or, with auto, what the cluster has. */}}
{{- define "accelshare.openshift" -}}
{{- $value := toString .Values.openshift.enabled -}}
{{- if or (eq $value "true") (and (eq $value "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}true{{- end -}}
{{- end }}

{{/* With auto: from 1.30 on, unless the cluster lists its kinds without it. `helm template` has no list of kinds, so the version decides. */}}
{{- define "accelshare.admissionPolicy" -}}
{{- $value := toString .Values.admissionPolicy.enabled -}}
{{- $kinds := .Capabilities.APIVersions -}}
{{- $has := or ($kinds.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (not ($kinds.Has "apps/v1/Deployment")) -}}
{{- if or (eq $value "true") (and (eq $value "auto") (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) $has) -}}true{{- end -}}
{{- end }}

{{/* Whether a Lease decides between several extenders. Before 1.23 no API server can refuse late Bindings of the one before. */}}
{{- define "accelshare.severalExtenders" -}}
{{- if and (gt (int .Values.extender.replicas) 1) (semverCompare ">=1.23-0" .Capabilities.KubeVersion.Version) -}}true{{- end -}}
{{- end }}

{{/* With auto: where the chart sets the variables with which kube-scheduler soon gives up a dead connection. 1.20 is the first to read them. */}}
{{- define "accelshare.http2" -}}
{{- $value := toString .Values.extender.http2 -}}
{{- $set := and (ne .Values.scheduler.mode "none") (semverCompare ">=1.20-0" .Capabilities.KubeVersion.Version) -}}
{{- if and .Values.tls.enabled (or (eq $value "true") (and (eq $value "auto") $set)) -}}true{{- end -}}
{{- end }}

{{- define "accelshare.prometheus" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ . | quote }}
prometheus.io/path: /metrics
{{- end }}
