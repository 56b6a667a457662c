{{/* SLOs of the installed services, as JSON, each merged over the defaults. */}}
{{- define "shop.slos" -}}
{{- $services := .Computed.services -}}
{{- $slos := dict -}}
{{- range $name, $own := .Values.slos -}}
{{- $slo := include "shop.merged" (list $.Values.sloDefaults $own) | fromJson -}}
{{- if and $slo.enabled $slo.service (hasKey $services $slo.service) -}}
{{- $_ := set $slo "protocol" (get $services $slo.service).protocol -}}
{{- $_ := set $slos $name $slo -}}
{{- end -}}
{{- end -}}
{{- toJson $slos -}}
{{- end -}}

{{/* gRPC statuses that are faults of the server, as in chassis.rpc.serving. */}}
{{- define "shop.serverFaults" -}}
DATA_LOSS|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNIMPLEMENTED|UNKNOWN
{{- end -}}

{{/* The collector's condition on a server span whose call took longer than its SLO allows. */}}
{{- define "shop.slowSpan" -}}
{{- $is := list (printf "resource.attributes[\"service.name\"] == %q" .service) "span.kind == SPAN_KIND_SERVER" -}}
{{- with .method }}{{ $is = append $is (printf "span.attributes[\"rpc.method\"] == %q" .) }}{{ end -}}
{{- with .route }}{{ $is = append $is (printf "span.attributes[\"http.route\"] == %q" .) }}{{ end -}}
{{- append $is (printf "span.end_time - span.start_time > Duration(\"%vs\")" .latencySeconds) | join " and " -}}
{{- end -}}

{{- define "shop.alertChecks" -}}
{{- $refused := dict
  "observability.prometheusRule.enabled: there are no metrics; set telemetry.endpoint or observability.enabled"
    (and .Values.observability.prometheusRule.enabled (not (include "shop.otlpEndpoint" .))) -}}
{{- $alertmanager := .Values.observability.alertmanager -}}
{{- $receivers := list -}}
{{- range $alertmanager.receivers }}{{ $receivers = append $receivers .name }}{{ end -}}
{{- range list "pageReceiver" "ticketReceiver" -}}
{{- $receiver := get $alertmanager . -}}
{{- $_ := set $refused (printf "observability.alertmanager.%s: there is no receiver %q" . $receiver) (not (has $receiver $receivers)) -}}
{{- end -}}
{{- /* Bounds in seconds, as in chassis.telemetry.semconv. */ -}}
{{- $bounds := list 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 -}}
{{- range $name, $slo := .Computed.slos -}}
{{- $refused = merge $refused (dict
  (printf "slos.%s.latencySeconds: %v is none of the bounds of the histograms: %s" $name $slo.latencySeconds (join ", " $bounds))
    (not (has ($slo.latencySeconds | float64) $bounds))
  (printf "slos.%s.method: %s serves HTTP; use route" $name $slo.service) (and $slo.method (eq $slo.protocol "http"))
  (printf "slos.%s.route: %s serves gRPC; use method" $name $slo.service) (and $slo.route (eq $slo.protocol "grpc"))
) -}}
{{- end -}}
{{- include "shop.refuse" $refused -}}
{{- end -}}

{{/* Recording rules and burn alerts of all SLOs. Rates over five minutes are recorded for each SLO; longer windows are
     averages of these, weighted by traffic, so they need one rule for all SLOs and read few series. */}}
{{- define "shop.sloRules" -}}
{{- $slos := .Computed.slos -}}
{{- $namespace := .Release.Namespace -}}
{{- $in := printf "k8s_namespace_name=%q" $namespace -}}
- name: slo-rates
  rules:
    {{- range $name, $slo := $slos }}
    {{- $metric := "rpc_server_call_duration_seconds" }}
    {{- $failed := printf "rpc_response_status_code=~%q" (include "shop.serverFaults" $) }}
    {{- $calls := printf "%s,service_name=%q" $in $slo.service }}
    {{- if eq $slo.protocol "http" }}
    {{- $metric = "http_server_request_duration_seconds" }}
    {{- $failed = "http_response_status_code=~\"5..\"" }}
    {{- end }}
    {{- with $slo.method }}{{ $calls = printf "%s,rpc_method=%q" $calls . }}{{ end }}
    {{- with $slo.route }}{{ $calls = printf "%s,http_route=%q" $calls . }}{{ end }}
    {{- /* Prometheus writes a whole number as 1 if it was pushed, and as 1.0 if it was scraped. */}}
    {{- $bound := printf "le=~\"%s(\\\\.0)?\"" (toString $slo.latencySeconds | replace "." "\\\\.") }}
    - record: slo:requests:rate5m
      expr: sum(rate({{ $metric }}_count{ {{- $calls -}} }[5m]))
      labels: &{{ $name }} {slo: "{{ $name }}", service_name: "{{ $slo.service }}", k8s_namespace_name: "{{ $namespace }}"}
    - record: slo:errors:rate5m
      expr: >-
        sum(rate({{ $metric }}_count{ {{- $calls }},{{ $failed -}} }[5m]))
        or 0 * sum(rate({{ $metric }}_count{ {{- $calls -}} }[5m]))
      labels: {<<: *{{ $name }}, objective: availability}
    - record: slo:errors:rate5m
      expr: >-
        clamp_min(
        sum(rate({{ $metric }}_count{ {{- $calls -}} }[5m]))
        - sum(rate({{ $metric }}_bucket{ {{- $calls }},{{ $bound -}} }[5m])), 0)
      labels: {<<: *{{ $name }}, objective: latency}
    - record: slo:latency_objective:seconds
      expr: vector({{ $slo.latencySeconds }})
      labels: *{{ $name }}
    {{- range $objective := list "availability" "latency" }}
    - record: slo:objective:ratio
      expr: vector({{ get $slo $objective }})
      labels: {<<: *{{ $name }}, objective: {{ $objective }}, severity: {{ $slo.severity }}}
    {{- end }}
    {{- end }}
- name: slo-windows
  rules:
    {{- range list (list "5m" 10) (list "30m" 60) (list "1h" 120) (list "2h" 240) (list "6h" 720) }}
    {{- include "shop.sloWindow" (prepend . $in) | nindent 4 }}
    {{- end }}
- name: slo-long-windows
  interval: 2m
  rules:
    {{- range list (list "1d" 2880) (list "3d" 8640) }}
    {{- include "shop.sloWindow" (prepend . $in) | nindent 4 }}
    {{- end }}
    {{- $byWindow := dict }}
    {{- range $name, $slo := $slos }}
    {{- $_ := set $byWindow $slo.window (append (get $byWindow $slo.window | default list) $name) }}
    {{- end }}
    {{- range $window, $names := $byWindow }}
    {{- $selected := printf "%s,slo=~%q" $in (join "|" (sortAlpha $names)) }}
    - record: slo:error_budget:remaining_ratio
      expr: >-
        1 - avg_over_time(slo:errors:rate5m{ {{- $selected -}} }[{{ $window }}:5m])
        / ignoring (objective) group_left () (avg_over_time(slo:requests:rate5m{ {{- $selected -}} }[{{ $window }}:5m]) > 0)
        / on (slo, service_name, k8s_namespace_name, objective) (1 - slo:objective:ratio{ {{- $selected -}} })
    {{- end }}
- name: slo-alerts
  rules:
    {{- range list (list "1h" "5m" 14.4 "page") (list "6h" "30m" 6.0 "page") (list "1d" "2h" 3.0 "ticket") (list "3d" "6h" 1.0 "ticket") }}
    {{- $long := index . 0 }}{{ $short := index . 1 }}{{ $factor := index . 2 }}
    {{- $limit := printf "%v * (1 - slo:objective:ratio{%s})" $factor $in }}
    - alert: ErrorBudgetBurn
      expr: >-
        slo:errors:ratio_rate{{ $long }}{ {{- $in -}} }
        > on (slo, objective){{ if eq (index . 3) "page" }} group_left (severity){{ end }} {{ $limit }}
        and on (slo, objective) slo:errors:ratio_rate{{ $short }}{ {{- $in -}} }
        > on (slo, objective) {{ $limit }}
        and on (slo, objective) sum_over_time(slo:errors:rate5m{ {{- $in -}} }[{{ $long }}]) * 30 >= 5
      labels:
        window: {{ $long }}
        {{- if eq (index . 3) "ticket" }}
        severity: ticket
        {{- end }}
      annotations:
        summary: {{ printf "The error budget of {{ $labels.slo }} (%s) burns %v times as fast as it may" "{{ $labels.objective }}" $factor }}
        description: >-
          {{ printf "{{ $labels.service_name }}: {{ $value | humanizePercentage }} of the calls of the last %s failed, or were" $long }}
          too slow, and so were those of the last {{ $short }}.
    {{- end }}
{{- end -}}

{{/* The rule for a window of all SLOs: (list selector window samples). Time before the first sample counts as free of
     errors: otherwise a minute of errors in the first hour after an install would be a high share of every window. */}}
{{- define "shop.sloWindow" -}}
{{- $in := index . 0 -}}{{- $window := index . 1 -}}{{- $samples := index . 2 -}}
{{- $errors := printf "slo:errors:rate5m{%s}" $in -}}
{{- $requests := printf "slo:requests:rate5m{%s}" $in -}}
{{- if ne $window "5m" -}}
{{- $errors = printf "sum_over_time(%s[%s]) / %d" $errors $window $samples -}}
{{- $requests = printf "avg_over_time(%s[%s])" $requests $window -}}
{{- end -}}
- record: slo:errors:ratio_rate{{ $window }}
  expr: {{ $errors }} / ignoring (objective) group_left () ({{ $requests }} > 0)
{{- end -}}

{{/* All groups of rules as YAML, with the namespace and links on every alert. One without labels is a ticket. */}}
{{- define "shop.rules" -}}
{{- $groups := include "shop.sloRules" . | fromYamlArray -}}
{{- $groups = concat $groups (include "shop.symptomRules" . | fromYamlArray) -}}
{{- $base := .Values.observability.runbookUrl | default "charts/shop/runbooks" -}}
{{- $dashboards := dict "slo-alerts" "overview" "orders" "orders" "letters" "orders" "reconciliation" "orders" "stores" "stores" "telemetry" "collector" -}}
{{- range $groups -}}
{{- $dashboard := get $dashboards .name | default "services" -}}
{{- $_ := set . "interval" (.interval | default "30s") -}}
{{- range .rules -}}
{{- if .alert -}}
{{- $_ := set . "labels" (.labels | default (dict "severity" "ticket")) -}}
{{- $_ := set .labels "k8s_namespace_name" $.Release.Namespace -}}
{{- $_ := set .annotations "runbook_url" (printf "%s/%s.md" (trimSuffix "/" $base) .alert) -}}
{{- $_ := set .annotations "dashboard" (printf "/d/%s" (include "shop.name" (list $ $dashboard))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}
