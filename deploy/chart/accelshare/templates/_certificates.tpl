{{/* Permissions and flags of the component that renews the certificates. */}}

{{- define "accelshare.certificateRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create] # which cannot be limited by name
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [accelshare-ca, accelshare-extender-tls, accelshare-scheduler-tls]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [services]
  resourceNames: [{{ include "accelshare.named" (list . .Values.extender.name) }}]
  verbs: [get]
{{- end }}

{{- define "accelshare.certificateFlags" -}}
- --ca-days={{ .Values.tls.caDays }}
- --leaf-days={{ .Values.tls.leafDays }}
{{- range .Values.tls.also }}
- --also={{ . }}
{{- end }}
{{- end }}
