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

{{/* The profiles in the image, as a JSON list. */}}
{{- define "accelshare.shippedNames" -}}
["amd","ascend","enflame","intel","kunlun","mthreads","nvidia","stream"]
{{- end }}

{{/* The text between quotes in `key = "text"`, or nothing. */}}
{{- define "accelshare.quoted" -}}
{{- regexReplaceAll "(?s)^[^\"']*[\"']([^\"']*)[\"'].*$" . "${1}" -}}
{{- end }}

{{/* A key of TOML before its first table: (list text key). */}}
{{- define "accelshare.topText" -}}
{{- $top := regexFind "(?ms)\\A.*?(?:^[ \\t]*\\[|\\z)" (index . 0) -}}
{{- with regexFind (printf "(?m)^[ \\t]*%s[ \\t]*=[ \\t]*[\"'][^\"'\\n]*[\"']" (index . 1)) $top -}}
{{- include "accelshare.quoted" . -}}
{{- end -}}
{{- end }}

{{/* A text in a table of TOML, in whichever form it is written: (list text table key). */}}
{{- define "accelshare.tableText" -}}
{{- $text := index . 0 -}}
{{- $table := index . 1 -}}
{{- $value := printf "%s[ \\t]*=[ \\t]*[\"'][^\"'\\n]*[\"']" (index . 2) -}}
{{- $section := regexFind (printf "(?ms)^[ \\t]*\\[%s\\].*?(?:\\n[ \\t]*\\[|\\z)" $table) $text -}}
{{- $inline := regexFind (printf "(?m)^[ \\t]*%s[ \\t]*=[ \\t]*\\{[^}\\n]*\\}" $table) $text -}}
{{- $dotted := regexFind (printf "(?m)^[ \\t]*%s\\.%s" $table $value) $text -}}
{{- $found := regexFind (printf "(?m)^[ \\t]*%s" $value) $section | default (regexFind (printf "[{,][ \\t]*%s" $value) $inline) | default $dotted -}}
{{- with $found -}}{{- include "accelshare.quoted" . -}}{{- end -}}
{{- end }}

{{/* The profile under `profiles` that defines this vendor: (list root name). A file without a name replaces what it extends. */}}
{{- define "accelshare.profileText" -}}
{{- $name := index . 1 -}}
{{- range $file, $text := (index . 0).Values.profiles -}}
{{- $own := include "accelshare.topText" (list $text "name") | default (include "accelshare.topText" (list $text "extends")) -}}
{{- if eq $own $name -}}{{- $text -}}{{- end -}}
{{- end -}}
{{- end }}

{{/* What the templates need of a vendor, as a JSON object: (list root name). The names of its profile under `profiles` come first,
then its own values, then the values of the vendor that its profile extends. */}}
{{- define "accelshare.vendor" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $text := include "accelshare.profileText" . -}}
{{- $shipped := include "accelshare.shippedVendors" $root | fromYaml -}}
{{- $values := index $root.Values.vendors $name -}}
{{- $base := index $root.Values.vendors (include "accelshare.topText" (list $text "extends")) | default dict -}}
{{- $resources := dict -}}
{{- range $kind := list "memory" "whole" -}}
{{- $of_values := index ($values.resources | default $base.resources | default dict) $kind -}}
{{- with include "accelshare.tableText" (list $text "resources" $kind) | default $of_values -}}
{{- $_ := set $resources $kind . -}}
{{- end -}}
{{- end -}}
{{- $label := $values.nodeLabel -}}
{{- if kindIs "invalid" $label -}}{{- $label = include "accelshare.topText" (list $text "node_label") | default $base.nodeLabel -}}{{- end -}}
{{- $keys := $values.recordAnnotations -}}
{{- if kindIs "invalid" $keys -}}{{- $keys = (index $shipped $name | default $base).recordAnnotations -}}{{- end -}}
{{- $keys = $keys | default list -}}
{{- range $key := list "index" "card_size" "pod_units" "assigned" "assign_time" -}}
{{- with include "accelshare.tableText" (list $text "annotations" $key) -}}{{- $keys = append $keys . -}}{{- end -}}
{{- end -}}
{{- $namespace := $values.unhealthyNamespace -}}
{{- if kindIs "invalid" $namespace -}}
{{- $namespace = include "accelshare.tableText" (list $text "unhealthy" "namespace") | default (index $shipped $name | default $base).unhealthyNamespace -}}
{{- if and (not $namespace) (include "accelshare.tableText" (list $text "unhealthy" "name")) -}}{{- $namespace = "kube-system" -}}{{- end -}}
{{- end -}}
{{- dict "resources" $resources "nodeLabel" ($label | default "") "recordAnnotations" ($keys | uniq) "unhealthyNamespace" ($namespace | default "") | toJson -}}
{{- end }}

{{/* Every resource for which kube-scheduler calls the extender, as a JSON list. */}}
{{- define "accelshare.resources" -}}
{{- $found := list -}}
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- $resources := (include "accelshare.vendor" (list $ $name) | fromJson).resources -}}
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
{{- with (include "accelshare.vendor" (list $ $name) | fromJson).nodeLabel -}}{{- $found = append $found . -}}{{- end -}}
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
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- $found = concat $found (include "accelshare.vendor" (list $ $name) | fromJson).recordAnnotations -}}
{{- end -}}
{{- $found | toJson -}}
{{- end }}

{{/* The namespaces of the ConfigMaps that list unhealthy cards, without duplicates, as a JSON list. */}}
{{- define "accelshare.unhealthyNamespaces" -}}
{{- $found := list -}}
{{- range $name := include "accelshare.vendors" . | fromJsonArray -}}
{{- with (include "accelshare.vendor" (list $ $name) | fromJson).unhealthyNamespace -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- $found | uniq | toJson -}}
{{- end }}

{{/* Agents run on nodes with the label of any enabled vendor. A vendor without a label uses the named nodes, or all. */}}
{{- define "accelshare.agentNodes" -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodes.selector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $everywhere := not (empty .Values.nodes.selector) }}
{{- $terms := list }}
{{- range $name := include "accelshare.vendors" . | fromJsonArray }}
{{- $label := (include "accelshare.vendor" (list $ $name) | fromJson).nodeLabel }}
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
{{- $affinity := dict }}
{{- if and $terms (not $everywhere) }}
{{- $required := dict "nodeSelectorTerms" ($terms | uniq) }}
{{- $affinity = dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" $required) }}
{{- end }}
{{- with mergeOverwrite $affinity (deepCopy (.Values.agent.affinity | default dict)) }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
