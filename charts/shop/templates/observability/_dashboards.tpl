{{/* A dashboard with the release in its identifier and its links, and with the chosen data sources: (list $ json).
     Grafana rejects two dashboards with the same identifier. */}}
{{- define "shop.dashboard" -}}
{{- $root := index . 0 -}}
{{- $replacement := printf "${1}%s-" (include "shop.fullname" $root) -}}
{{- $dashboard := regexReplaceAll "(\"uid\": \"|/d/)shop-" (index . 1) $replacement | fromJson -}}
{{- $sources := $root.Values.observability.dashboards.dataSources -}}
{{- $names := dict "datasource" $sources.metrics "traces" $sources.traces "logs" $sources.logs -}}
{{- range $variable := $dashboard.templating.list -}}
{{- with get $names $variable.name -}}
{{- $_ := set $variable "current" (dict "text" . "value" .) -}}
{{- end -}}
{{- if eq $sources.tracesType "tempo" -}}
{{- if eq $variable.name "traces" }}{{ $_ := set $variable "query" "tempo" }}{{ end -}}
{{- if eq $variable.name "traces_query" }}{{ $_ := set $variable "query" "traceql" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toPrettyJson $dashboard -}}
{{- end -}}
