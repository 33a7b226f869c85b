{{/* The same entry that `accelshare scheduler-config render --form second-scheduler` writes; a test compares them. */}}
{{- define "accelshare.secondSchedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: {{ include "accelshare.named" (list . .Values.secondScheduler.name) }}
  resourceNamespace: {{ .Release.Namespace }}
percentageOfNodesToScore: {{ .Values.secondScheduler.percentageOfNodesToScore }}
profiles:
- schedulerName: {{ include "accelshare.named" (list . .Values.secondScheduler.name) }}
extenders:
- urlPrefix: {{ if .Values.tls.enabled }}https{{ else }}http{{ end }}://{{ include "accelshare.named" (list . .Values.extender.name) }}.{{ .Release.Namespace }}.svc:{{ .Values.service.port }}/accelshare
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: {{ .Values.scheduler.weight }}
  enableHTTPS: {{ .Values.tls.enabled }}
  httpTimeout: {{ .Values.scheduler.timeoutMs }}ms
  nodeCacheCapable: true
  {{- if .Values.tls.enabled }}
  tlsConfig:
    caFile: /etc/accelshare/tls/ca.crt
    certFile: /etc/accelshare/tls/tls.crt
    keyFile: /etc/accelshare/tls/tls.key
    serverName: accelshare-extender
  {{- end }}
  managedResources:
  {{- range include "accelshare.resources" . | fromJsonArray }}
  - {name: {{ . }}, ignoredByScheduler: false}
  {{- end }}
{{- end }}
