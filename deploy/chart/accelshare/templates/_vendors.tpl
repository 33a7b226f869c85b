{{/* The enabled vendors: their names, flags, labels. */}}

{{/* Names of the enabled vendors as a JSON list, sorted. */}}
{{- define "accelshare.vendors" -}}
{{- $names := list -}}
{{- range $name, $vendor := .Values.vendors -}}
{{- if $vendor.enabled -}}{{- $names = append $names $name -}}{{- end -}}
{{- end -}}
{{- $names | sortAlpha | toJson -}}
{{- end }}

{{- define "accelshare.vendorFlags" -}}
{{- range include "accelshare.vendors" . | fromJsonArray }}
- --vendor={{ . }}
{{- end }}
{{- end }}

{{/* Every resource for which kube-scheduler calls the extender, as a JSON list. */}}
{{- define "accelshare.resources" -}}
{{- $found := list -}}
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- $resources := (index $.Values.vendors $name).resources | default dict -}}
{{- range $resource := list $resources.memory $resources.whole -}}
{{- if $resource -}}{{- $found = append $found $resource -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{/* The labels of nodes that share cards, without duplicates, as a JSON list. */}}
{{- define "accelshare.nodeLabels" -}}
{{- $found := list -}}
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- with (index $.Values.vendors $name).nodeLabel -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- $found | uniq | toJson -}}
{{- end }}

{{/* As values.yaml has it, for values of an older chart that do not say it (helm upgrade --reuse-values): without these an upgrade
would leave records unguarded and forget which cards people have marked as unhealthy. */}}
{{- define "accelshare.shippedVendors" -}}
{{- range $name, $prefix := dict "nvidia" "ALIYUN_COM_GPU_MEM" "kunlun" "BAIDU_COM_XPU_MEM" }}
{{ $name }}:
  unhealthyNamespace: kube-system
  recordAnnotations:
  {{- range list "IDX" "DEV" "POD" "ASSIGNED" "ASSUME_TIME" }}
  - {{ $prefix }}_{{ . }}
  {{- end }}
{{- end }}
enflame:
  unhealthyNamespace: kube-system
  recordAnnotations:
  {{- range list "id" "memory" "memory-request" "assigned" "assign-time" }}
  - enflame.com/gcu-device-{{ . }}
  {{- end }}
{{- end }}

{{/* The annotations that record a pod's cards, of all enabled vendors, as a JSON list. */}}
{{- define "accelshare.recordAnnotations" -}}
{{- $found := list "accelshare.io/assignment" -}}
{{- $shipped := include "accelshare.shippedVendors" . | fromYaml -}}
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- $keys := (index $.Values.vendors $name).recordAnnotations -}}
{{- if kindIs "invalid" $keys -}}{{- $keys = (index $shipped $name | default dict).recordAnnotations -}}{{- end -}}
{{- $found = concat $found ($keys | default list) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{/* The namespaces of the ConfigMaps that list unhealthy cards, without duplicates, as a JSON list. */}}
{{- define "accelshare.unhealthyNamespaces" -}}
{{- $found := list -}}
{{- $shipped := include "accelshare.shippedVendors" . | fromYaml -}}
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- $namespace := (index $.Values.vendors $name).unhealthyNamespace -}}
{{- if kindIs "invalid" $namespace -}}{{- $namespace = (index $shipped $name | default dict).unhealthyNamespace -}}{{- end -}}
{{- with $namespace -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- $found | uniq | toJson -}}
{{- end }}

{{/* Agents run on nodes with the label of any enabled vendor. A vendor without a label uses the named nodes, or all. */}}
{{- define "accelshare.agentNodes" -}}
{{- if .Values.nodes.selector }}
nodeSelector:
  kubernetes.io/os: linux
  {{- toYaml .Values.nodes.selector | nindent 2 }}
{{- else }}
nodeSelector:
  kubernetes.io/os: linux
{{- $everywhere := false }}
{{- $terms := list }}
{{- range $name := include "accelshare.vendors" . | fromJsonArray }}
{{- $label := (index $.Values.vendors $name).nodeLabel }}
{{- if $label }}
{{- $parts := splitn "=" 2 $label }}
{{- $terms = append $terms (dict "matchExpressions" (list (dict "key" $parts._0 "operator" "In" "values" (list $parts._1)))) }}
{{- else if $.Values.nodes.names }}
{{- range $.Values.nodes.names }}
{{- $terms = append $terms (dict "matchFields" (list (dict "key" "metadata.name" "operator" "In" "values" (list .)))) }}
{{- end }}
{{- else }}
{{- $everywhere = true }}
{{- end }}
{{- end }}
{{- if and $terms (not $everywhere) }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      {{- toYaml ($terms | uniq) | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}
