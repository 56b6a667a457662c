{{/* A service's environment: (list $ name service). The entry's variables replace the chart's in place, so that $(NAME)
     still refers to an earlier variable. Server-side apply rejects a name that appears twice. */}}
{{- define "shop.env" -}}
{{- $service := index . 2 -}}{{- $mesh := (index . 0).Computed.mesh -}}
{{- $variables := include "shop.chartEnv" . | fromYamlArray -}}
{{- range $name, $reference := $service.secretRefs -}}
{{- $variables = append $variables (dict "name" $name "valueFrom" (dict "secretKeyRef" $reference)) -}}
{{- end -}}
{{- range $name, $value := $service.env -}}
{{- /* Values pass through JSON, which would make 2592000 "2.592e+06". */ -}}
{{- if kindIs "float64" $value -}}{{- $value = eq $value (float64 (int64 $value)) | ternary (int64 $value) $value -}}{{- end -}}
{{- if and (eq $name "TRUSTED_PROXIES") $mesh.proxy -}}{{- $value = printf "%v,%s" $value $mesh.proxy -}}{{- end -}}
{{- $variables = append $variables (dict "name" $name "value" (toString $value)) -}}
{{- end -}}
{{- $names := list -}}{{- $byName := dict -}}
{{- range $variables -}}
{{- $names = append $names .name -}}
{{- $_ := set $byName .name . -}}
{{- end -}}
{{- range uniq $names }}
- {{- get $byName . | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "shop.chartEnv" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $service := index . 2 -}}
{{- $shutdown := include "shop.shutdown" $service | fromJson }}
- {name: PORT, value: {{ $service.port | quote }}}
{{- if $service.internal }}
- {name: INTERNAL_PORT, value: {{ $service.internalPort | quote }}}
{{- end }}
- {name: LOG_LEVEL, value: {{ $root.Values.logLevel }}}
{{- if eq $service.protocol "grpc" }}
- {name: HEALTH_PORT, value: "50053"}
- {name: MAX_CONNECTION_AGE_SECONDS, value: {{ $shutdown.connectionAge | quote }}}
{{- else }}
- {name: ALLOWED_HOSTS, value: {{ include "shop.allowedHosts" . | quote }}}
{{- if hasPrefix "https:" $service.url }}
- {name: SECURE_COOKIE, value: "1"}
{{- end }}
{{- end }}
- {name: DRAIN_SECONDS, value: {{ $shutdown.drain | quote }}}
- {name: GRACE_SECONDS, value: {{ $service.shutdown.graceSeconds | quote }}}
{{- if $root.Values.lab.enabled }}
- {name: LAB, value: "1"}
- {name: PYTHONPATH, value: "/modules:/app:/packages"}
{{- end }}
{{- if $root.Values.development }}
- {name: RELOAD, value: "1"}
{{- end }}
{{- include "shop.addressEnv" (list $root $service) }}
{{- if and $root.Values.tls.enabled (eq $service.protocol "grpc") }}
- {name: ALLOWED_CALLS, value: {{ include "shop.allowedCalls" . | quote }}}
{{- end }}
{{- include "shop.connectionEnv" $root }}
{{- include "shop.postgresqlEnv" . }}
{{- include "shop.valkeyEnv" . }}
{{- range $service.secrets }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ include "shop.secretName" $ }}, key: {{ . }}}}
{{- end }}
{{- if eq $name "email" }}
{{- with $root.Computed.services | dig "storefront" "url" "" }}
- {name: STOREFRONT_URL, value: {{ . }}}
{{- end }}
{{- end }}
{{- if eq $name "storefront" }}
{{- if $root.Values.observability.enabled }}
- {name: TRACES_URL, value: "http://{{ include "shop.name" (list $root "jaeger") }}:16686"}
{{- end }}
{{- end }}
{{- range $variable, $file := $service.files }}
- {name: {{ $variable }}, value: /etc/shop/{{ $file.name }}}
{{- end }}
{{- include "shop.telemetryEnv" . }}
{{- end -}}

{{/* Addresses of what a client calls, without services that are not installed: (list $ client). */}}
{{- define "shop.addressEnv" -}}
{{- $root := index . 0 -}}{{- $client := index . 1 -}}
{{- range $callee, $_ := $root.Computed.callers }}
{{- if get ($client.calls | default dict) $callee }}
- {name: {{ $callee | upper | replace "-" "_" }}_ADDR, value: "{{ include "shop.host" (list $root $callee) }}:50051"}
{{- end }}
{{- if get ($client.internalCalls | default dict) $callee }}
- {name: {{ $callee | upper | replace "-" "_" }}_INTERNAL_ADDR, value: "{{ include "shop.host" (list $root $callee) }}:50052"}
{{- end }}
{{- end }}
{{- end -}}

{{/* Host names that an HTTP service answers to, against DNS rebinding: its Service's, its URL's, and those of forwarded
     ports: (list $ name service). */}}
{{- define "shop.allowedHosts" -}}
{{- $hosts := include "shop.dnsNames" . | fromJsonArray | concat (list "localhost" "127.0.0.1" "[::1]") -}}
{{- with (index . 2).url }}{{ $hosts = append $hosts (regexReplaceAll ":[0-9]*$" (urlParse .).host "" | lower) }}{{ end -}}
{{- join "," (uniq $hosts) -}}
{{- end -}}

{{/* A host as a URL has it: an IPv6 address in brackets. */}}
{{- define "shop.urlHost" -}}
{{- contains ":" . | ternary (printf "[%s]" (trimAll "[]" .)) . -}}
{{- end -}}

{{/* Secret with a service's generated keys and its database password: (list $ name service). */}}
{{- define "shop.secretName" -}}
{{- (index . 2).existingSecret | default (include "shop.name" .) -}}
{{- end -}}

{{- define "shop.connectionEnv" -}}
{{- if .Values.tls.enabled }}
- {name: TLS_FOLDER, value: /etc/shop-tls}
{{- else if ne .Values.mesh "none" }}
- {name: BALANCING, value: mesh}
{{- end }}
{{- end -}}

{{- define "shop.postgresqlEnv" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $service := index . 2 -}}
{{- $store := include "shop.store" (list $root $service) -}}
{{- $role := include "shop.role" $name -}}
{{- $external := $root.Values.externalDatabase -}}
{{- $servers := dict
  "cloudnativepg" (printf "%s:5432" (include "shop.name" (list $root (printf "pg-%s-rw" $service.durability))))
  "postgresql" (printf "%s:5432" (include "shop.name" (list $root "postgresql")))
  "external-postgresql" (printf "%s:%v" (include "shop.urlHost" ($external.host | default "")) $external.port) }}
{{- $operated := eq $store "cloudnativepg" }}
{{- if hasKey $servers $store }}
- {name: DATABASE_URL, value: "postgresql://{{ $role }}@{{ get $servers $store }}/{{ $role }}"}
# libpq's own variable: in the address, a password would have to be escaped.
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ include (ternary "shop.roleSecret" "shop.secretName" $operated) $ }}, key: {{ ternary "password" "database-password" $operated }}}}
- {name: PGCONNECT_TIMEOUT, value: "5"}
{{- else if eq $store "sqlite" }}
- {name: DATABASE_URL, value: "sqlite:////data/{{ $name }}.db"}
{{- end }}
{{- if or $operated (and (eq $store "postgresql") $root.Values.tls.enabled) }}
- {name: PGSSLMODE, value: verify-full}
- {name: PGSSLROOTCERT, value: /etc/shop-{{ ternary "ca" "tls" $operated }}/ca.crt}
{{- end }}
{{- if and (eq $service.store "postgresql") (not $root.Values.postgresql.enabled) (ne $store "sqlite") }}
# Defaults of libpq for any address, including those in Secrets.
- {name: PGSSLMODE, value: {{ $external.sslmode }}}
{{- if $external.caSecret.name }}
- {name: PGSSLROOTCERT, value: /etc/shop-ca/ca.crt}
{{- end }}
{{- end }}
{{- end -}}

{{- define "shop.valkeyEnv" -}}
{{- $root := index . 0 -}}
{{- $store := include "shop.store" (list $root (index . 2)) -}}
{{- $external := $root.Values.externalValkey -}}
{{- if hasSuffix "valkey" $store }}
{{- $own := eq $store "valkey" }}{{- $name := include "shop.name" (list $root "valkey") }}
{{- $server := ternary (print $name ":6379") (printf "%s:%v" (include "shop.urlHost" ($external.host | default "")) $external.port) $own }}
{{- $tls := ternary $root.Values.tls.enabled $external.tls $own }}
{{- $ca := ternary "/etc/shop-tls/ca.crt" (ternary "/etc/shop-ca/ca.crt" "" (not (empty $external.caSecret.name))) $own }}
- name: VALKEY_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ ternary ($root.Values.valkey.existingSecret | default $name) $external.existingSecret $own }}, key: valkey-password}}
- name: REDIS_URL
  value: "redis{{ if $tls }}s{{ end }}://:$(VALKEY_PASSWORD)@{{ $server }}/0{{ if and $tls $ca }}?ssl_ca_certs={{ $ca }}{{ end }}"
{{- end }}
{{- end -}}

{{/* Where a process sends its telemetry, and its resource attributes: (list $ name service). */}}
{{- define "shop.telemetryEnv" -}}
{{- $root := index . 0 -}}{{- $telemetry := $root.Values.telemetry -}}
{{- with include "shop.otlpEndpoint" $root }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
- {name: OTEL_EXPORTER_OTLP_PROTOCOL, value: {{ $telemetry.protocol }}}
{{- if $telemetry.headersSecret.name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ $telemetry.headersSecret.name }}, key: {{ $telemetry.headersSecret.key }}}}
{{- end }}
{{- $own := and $root.Values.tls.enabled (not $telemetry.endpoint) }}
{{- $folder := ternary "/etc/shop-tls" "/etc/shop-otlp" $own }}
{{- if or $own $telemetry.tls.caSecret.name }}
- {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: {{ $folder }}/ca.crt}
{{- end }}
{{- if or $own $telemetry.tls.clientSecret }}
- {name: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, value: {{ $folder }}/tls.crt}
- {name: OTEL_EXPORTER_OTLP_CLIENT_KEY, value: {{ $folder }}/tls.key}
{{- end }}
- {name: OTEL_PROPAGATORS, value: {{ $telemetry.propagators | quote }}}
# A rate over a minute needs several samples in it; methods that find causes read one per second.
- {name: OTEL_METRIC_EXPORT_INTERVAL, value: {{ ternary "15000" "1000" (not $root.Values.lab.enabled) | quote }}}
{{- if eq $telemetry.sampling "tail" }}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_always_on}
{{- else }}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ $telemetry.sampleRatio | quote }}}
{{- end }}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ include "shop.resourceAttributes" $ | quote }}}
{{- end }}
{{- end -}}

{{/* Resource attributes of a process: (list $ name service). A job has no pod name: each run would make new series. */}}
{{- define "shop.resourceAttributes" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
{{- $version := (index . 2).version -}}{{- $image := (index . 2).image -}}
{{- $workload := list (include "shop.name" (list $root $name)) $version | compact | join "-" -}}
{{- $attributes := dict
  "service.version" (coalesce $version $image.tag $image.digest $root.Values.image.tag $root.Chart.AppVersion)
  "k8s.namespace.name" $root.Release.Namespace
  "shop.release" (include "shop.fullname" $root) }}
{{- $own := dict
  "service.instance.id" "$(POD_NAME)"
  "k8s.pod.name" "$(POD_NAME)"
  "k8s.node.name" "$(NODE_NAME)"
  "k8s.deployment.name" $workload }}
{{- if eq $name "reconciliation" -}}
{{- $own = dict "service.instance.id" $workload "k8s.cronjob.name" $workload -}}
{{- end -}}
{{- range $key, $value := $root.Values.telemetry.resourceAttributes }}
{{- $_ := set $attributes $key (urlquery $value | replace "+" "%20") }}
{{- end }}
{{- $pairs := list }}
{{- range $key, $value := merge $attributes $own }}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) }}
{{- end }}
{{- join "," $pairs -}}
{{- end -}}
