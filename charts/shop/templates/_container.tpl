{{/* A service's environment: (list $ name service). */}}
{{- define "shop.env" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $service := index . 2 -}}
{{- $secret := $service.existingSecret | default (include "shop.name" (list $root $name)) -}}
- {name: PORT, value: {{ $service.port | quote }}}
{{- if eq $service.protocol "http" }}
- {name: HOST, value: 0.0.0.0}
{{- end }}
- {name: LOG_LEVEL, value: {{ $root.Values.logLevel }}}
- {name: MAX_CONNECTION_AGE_SECONDS, value: {{ $service.shutdown.maxConnectionAgeSeconds | quote }}}
- {name: DRAIN_SECONDS, value: {{ $service.shutdown.drainSeconds | quote }}}
- {name: GRACE_SECONDS, value: {{ $service.shutdown.graceSeconds | quote }}}
{{- if $root.Values.development }}
- {name: RELOAD, value: "1"}
{{- end }}
{{- range $service.calls }}
- {name: {{ include "shop.variable" . }}_ADDR, value: "{{ include "shop.name" (list $root .) }}:50051"}
{{- end }}
{{- if include "shop.usesPassword" (list $root $service) }}
{{- $role := include "shop.role" $name }}
{{- if $root.Values.postgresql.enabled }}
- {name: DATABASE_URL, value: "postgresql://{{ $role }}@{{ include "shop.name" (list $root "postgresql") }}:5432/{{ $role }}"}
{{- else }}
{{- $database := $root.Values.externalDatabase }}
- {name: DATABASE_URL, value: "postgresql://{{ $role }}@{{ $database.host }}:{{ $database.port }}/{{ $role }}?sslmode={{ $database.sslmode }}"}
{{- end }}
# libpq's own variable: a password in the address would have to be escaped.
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: database-password}}
- {name: PGCONNECT_TIMEOUT, value: "5"}
{{- else if include "shop.usesSqlite" (list $root $service) }}
- {name: DATABASE_URL, value: "sqlite:////data/{{ $name }}.db"}
{{- end }}
{{- if and (eq $service.store "valkey") $root.Values.valkey.enabled (not (hasKey $service.secretRefs "REDIS_URL")) }}
- name: VALKEY_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ $root.Values.valkey.existingSecret | default (include "shop.name" (list $root "valkey")) }}, key: valkey-password}}
- {name: REDIS_URL, value: "redis://:$(VALKEY_PASSWORD)@{{ include "shop.name" (list $root "valkey") }}:6379/0"}
{{- end }}
{{- range $service.secrets }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $secret }}, key: {{ . }}}}
{{- end }}
{{- range $variable, $reference := $service.secretRefs }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ $reference.name }}, key: {{ $reference.key }}}}
{{- end }}
{{- range $variable, $file := $service.files }}
- {name: {{ $variable }}, value: /etc/shop/{{ $file.name }}}
{{- end }}
{{- with include "shop.otlpEndpoint" $root }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
# Rates over a minute need several samples in it.
- {name: OTEL_METRIC_EXPORT_INTERVAL, value: "15000"}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ $root.Values.telemetry.sampleRatio | quote }}}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: "service.version={{ $root.Chart.AppVersion }},service.instance.id=$(POD_NAME),k8s.pod.name=$(POD_NAME),k8s.namespace.name={{ $root.Release.Namespace }}
    {{- range $key, $value := $root.Values.telemetry.resourceAttributes }},{{ $key }}={{ $value }}{{ end }}"
{{- end }}
{{- range $variable, $value := $service.env }}
- {name: {{ $variable }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* One handler for each probe: which one is the protocol's choice, never merged from values. */}}
{{- define "shop.probes" -}}
{{- $name := index . 0 -}}{{- $service := index . 1 -}}
{{- if eq $service.protocol "grpc" -}}
startupProbe:
  grpc: {port: {{ $service.port }}, service: liveness}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  grpc: {port: {{ $service.port }}, service: {{ include "shop.grpcName" $name }}}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  grpc: {port: {{ $service.port }}, service: liveness}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- else -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $service.port }}}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: {{ $service.port }}}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: {{ $service.port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}
{{- end -}}

{{- define "shop.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /data}
{{- if .files }}
- {name: files, mountPath: /etc/shop, readOnly: true}
{{- end }}
{{- end -}}
