{{/* Derives from the values what many templates use, once per render, and checks it: `.Computed` of the chart's root
     context, which templates only read. */}}
{{- define "shop.compute" -}}
{{- if not (hasKey . "Computed") -}}
{{- $computed := dict -}}
{{- $_ := set . "Computed" $computed -}}
{{- $_ := set $computed "mesh" (include "shop.mesh" . | fromJson) -}}
{{- $_ := set $computed "services" (include "shop.services" . | fromJson) -}}
{{- $_ := set $computed "workloads" (include "shop.workloads" . | fromJson) -}}
{{- $_ := set $computed "components" (include "shop.components" . | fromJsonArray) -}}
{{- $_ := set $computed "callers" (include "shop.callers" . | fromJson) -}}
{{- $_ := set $computed "clusters" (include "shop.clusters" . | fromJson) -}}
{{- $_ := set $computed "routed" (include "shop.routed" . | fromJson) -}}
{{- $_ := set $computed "slos" (include "shop.slos" . | fromJson) -}}
{{- $_ := set $computed "edges" (include "shop.edges" . | fromYamlArray) -}}
{{- include "shop.checks" . -}}
{{- end -}}
{{- end -}}

{{/* Names and labels */}}

{{/* The prefix of all names, by which selectors tell installations apart: an umbrella chart's release may have several. */}}
{{- define "shop.fullname" -}}
{{- $suffix := .Values.nameOverride | default (eq .Chart.Name "shop" | ternary "" .Chart.Name) -}}
{{- .Values.fullnameOverride | default (list .Release.Name $suffix | compact | join "-") -}}
{{- end -}}

{{- define "shop.name" -}}
{{- printf "%s-%s" (include "shop.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* Labels that select the pods of a component: (list $ "cart"). Like selectors and volume claims, they must not change. */}}
{{- define "shop.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ include "shop.fullname" (index . 0) }}
{{- end -}}

{{- define "shop.labels" -}}
{{ include "shop.selector" . }}
app.kubernetes.io/part-of: shop
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- if (index . 0).Values.lab.enabled }}
shop/lab: "true"
{{- end }}
{{- end -}}

{{/* (list $ name [wave [suffix [labels]]]). Argo CD waits until each wave is healthy: what pods need, then stores in 1,
     services in 2, and in 3 what may be unhealthy without them or must not hold them up. Helm and Flux ignore waves. */}}
{{- define "shop.metadata" -}}
{{- $given := concat . (list "" "" "") -}}
name: {{ list (include "shop.name" .) (index $given 3) | compact | join "-" }}
namespace: {{ (index . 0).Release.Namespace }}
labels: {{- merge (include "shop.labels" . | fromYaml) (index $given 4 | default dict) | toYaml | nindent 2 }}
{{- with index $given 2 }}
annotations:
  argocd.argoproj.io/sync-wave: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Services: each entry merged over the defaults. sprig's merge would drop false and 0. */}}

{{- define "shop.merged" -}}
{{- $result := deepCopy (index . 0) -}}
{{- include "shop.mergeInto" (list $result (index . 1)) -}}
{{- toJson $result -}}
{{- end -}}

{{- define "shop.mergeInto" -}}
{{- $target := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $target $key)) -}}
{{- include "shop.mergeInto" (list (get $target $key) $value) -}}
{{- else -}}
{{- $_ := set $target $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "shop.services" -}}
{{- $services := dict -}}
{{- $defaults := deepCopy .Values.defaults -}}
{{- if .Values.highAvailability -}}
{{- $_ := set $defaults "replicas" (max 2 $defaults.replicas) -}}
{{- $_ := set $defaults.autoscaling "minReplicas" (max 2 $defaults.autoscaling.minReplicas) -}}
{{- end -}}
{{- range $name, $own := .Values.services -}}
{{- $service := include "shop.merged" (list $defaults $own) | fromJson -}}
{{- if and $service.enabled (not (kindIs "invalid" $own)) -}}
{{- $_ := set $service "port" (ternary 50051 (int $service.port) (eq $service.protocol "grpc")) -}}
{{- $_ := set $service "internalPort" 50052 -}}
{{- $_ := set $service "internal" (or $service.internal (and $.Values.lab.enabled (eq $service.protocol "grpc"))) -}}
{{- range $version, $of := $service.versions -}}
{{- if kindIs "invalid" $of -}}{{- $_ := unset $service.versions $version -}}{{- end -}}
{{- end -}}
{{- $_ := set $services $name $service -}}
{{- end -}}
{{- end -}}
{{- toJson $services -}}
{{- end -}}

{{/* What has a Deployment, as JSON: each service with its `name`, or each of its versions, which also has a `version`. */}}
{{- define "shop.workloads" -}}
{{- $workloads := dict -}}
{{- range $name, $service := .Computed.services -}}
{{- range $version, $own := $service.versions | default (dict "" dict) -}}
{{- $workload := include "shop.merged" (list $service $own) | fromJson -}}
{{- $_ := set $workload "name" $name -}}{{- $_ := set $workload "version" $version -}}
{{- if $version -}}{{- $_ := set $workload.env (printf "%s_VERSION" (upper $name | replace "-" "_")) $version -}}{{- end -}}
{{- /* A version's own image must not get the service's digest or tag. */}}
{{- with $own.image -}}{{- $_ := set $workload "image" (merge (deepCopy .) (dict "digest" "" "tag" "")) -}}{{- end -}}
{{- $_ := set $workloads (list $name $version | compact | join "-") $workload -}}
{{- end -}}
{{- end -}}
{{- toJson $workloads -}}
{{- end -}}

{{/* Sum of the weights of versions; empty if none has one. */}}
{{- define "shop.weights" -}}
{{- $weighted := false -}}{{- $sum := 0 -}}
{{- range . -}}
{{- $weighted = or $weighted (hasKey . "weight") -}}{{- $sum = add $sum (int .weight) -}}
{{- end -}}
{{- if $weighted }}{{ $sum }}{{ end -}}
{{- end -}}

{{/* Labels that select the pods of a workload: (list $ workload). */}}
{{- define "shop.workloadSelector" -}}
{{ include "shop.selector" (list (index . 0) (index . 1).name) }}
{{- with (index . 1).version }}
app.kubernetes.io/version: {{ . }}
{{- end }}
{{- end -}}

{{/* Components that have pods in the release, as JSON; each has a service account. Reconciliation and `helm test` need the
     services that they call. */}}
{{- define "shop.components" -}}
{{- $observability := .Values.observability -}}{{- $services := .Computed.services -}}
{{- $components := dict
  "alertmanager" (and $observability.enabled $observability.alertmanager.enabled)
  "grafana" (and $observability.enabled $observability.grafana.enabled)
  "jaeger" $observability.enabled
  "lab" .Values.lab.enabled
  "load-generator" .Values.load.enabled
  "loki" (include "shop.storesLogs" .)
  "otel-collector" (include "shop.collects" .)
  "postgresql" (and .Values.postgresql.enabled (not .Values.postgresql.cloudnativepg.enabled))
  "prometheus" $observability.enabled
  "reconciliation" (and .Values.reconciliation.enabled $services.checkout $services.payment $services.shipping)
  "test" (and $services.checkout $services.cart (get $services "product-catalog"))
  "valkey" .Values.valkey.enabled -}}
{{- $names := keys $services -}}
{{- range $name, $installed := $components -}}
{{- if $installed }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- $names | sortAlpha | toJson -}}
{{- end -}}

{{/* The gRPC service whose health is the pod's readiness: shop.ProductCatalogService for product-catalog. */}}
{{- define "shop.grpcName" -}}
shop.{{ . | replace "-" " " | title | replace " " "" }}Service
{{- end -}}

{{/* Who may call what, as JSON: callee → caller → full names of methods. A caller is a component or a SPIFFE name.
     Addresses, network policies, ALLOWED_CALLS and mesh policies all derive from it. What reconciliation and tests call
     may be missing. */}}
{{- define "shop.callers" -}}
{{- $services := .Computed.services -}}
{{- $lab := dict -}}
{{- $clients := dict "test" .Values.tests "lab" (dict "internalCalls" $lab) -}}
{{- if has "reconciliation" .Computed.components -}}{{- $_ := set $clients "reconciliation" .Values.reconciliation -}}{{- end -}}
{{- range $caller, $calls := .Values.tls.callers -}}{{- $_ := set $clients $caller (dict "calls" $calls) -}}{{- end -}}
{{- $callers := dict -}}
{{- range $name, $service := $services -}}
{{- if eq $service.protocol "grpc" -}}{{- $_ := set $callers $name dict -}}{{- end -}}
{{- if and $.Values.lab.enabled (eq $service.protocol "grpc") -}}{{- $_ := set $lab $name (list "Failpoints/ListFailpoints" "Failpoints/SetFailpoint") -}}{{- end -}}
{{- $_ := set $clients $name $service -}}
{{- end -}}
{{- range $caller, $client := $clients -}}
{{- range $key, $calls := pick $client "calls" "internalCalls" -}}
{{- range $callee, $methods := $calls -}}
{{- if not $methods }}{{ continue }}{{ end -}}
{{- if and (hasKey $callers $callee) (or (eq $key "calls") (index $services $callee).internal) -}}
{{- $names := get (get $callers $callee) $caller | default list -}}
{{- range $methods -}}
{{- $names = append $names (contains "/" . | ternary (print "shop.internal." .) (printf "%s/%s" (include "shop.grpcName" $callee) .)) -}}
{{- end -}}
{{- $_ := set (get $callers $callee) $caller $names -}}
{{- else if not (has $caller (list "reconciliation" "test")) -}}
{{- $where := hasKey $services $caller | ternary (printf "services.%s.%s" $caller $key) "tls.callers" -}}
{{- $kind := eq $key "calls" | ternary "gRPC service" "service with internal methods" -}}
{{- fail (printf "%s: there is no %s %q; install it, or set it there to []" $where $kind $callee) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $callers -}}
{{- end -}}

{{/* SPIFFE name of a caller: (list $ caller). */}}
{{- define "shop.spiffe" -}}
{{- $root := index . 0 -}}{{- $caller := index . 1 -}}
{{- if hasPrefix "spiffe://" $caller -}}{{- $caller -}}{{- else -}}
{{- printf "spiffe://%s/ns/%s/sa/%s" $root.Values.tls.trustDomain $root.Release.Namespace (include "shop.name" .) -}}
{{- end -}}
{{- end -}}

{{/* What a service allows, as JSON: full names of methods by the names in the caller's certificate: (list $ name). */}}
{{- define "shop.allowedCalls" -}}
{{- $root := index . 0 -}}{{- $allowed := dict -}}
{{- range $caller, $methods := get $root.Computed.callers (index . 1) -}}
{{- $names := list (include "shop.spiffe" (list $root $caller)) -}}
{{- if and $root.Values.tls.enabled (eq $root.Values.tls.issuer "authority") (not (hasPrefix "spiffe://" $caller)) -}}
{{- $names = append $names (include "shop.dnsNames" (list $root $caller) | fromJsonArray | last) -}}
{{- end -}}
{{- range $names -}}
{{- $_ := set $allowed . (concat (get $allowed . | default list) $methods | uniq) -}}
{{- end -}}
{{- end -}}
{{- toJson $allowed -}}
{{- end -}}

{{/* Name of a service's database and role in PostgreSQL. */}}
{{- define "shop.role" -}}
{{- . | replace "-" "_" -}}
{{- end -}}

{{/* Where a service stores its data: postgresql, cloudnativepg, external-postgresql, sqlite, valkey, external-valkey,
     memory, custom (its entry sets the address) or empty: (list $ service). */}}
{{- define "shop.store" -}}
{{- $values := (index . 0).Values -}}{{- $service := index . 1 -}}
{{- $variable := get (dict "postgresql" "DATABASE_URL" "valkey" "REDIS_URL") $service.store -}}
{{- if and $variable (or (hasKey $service.env $variable) (hasKey $service.secretRefs $variable)) -}}
custom
{{- else if eq $service.store "postgresql" -}}
{{- if $values.postgresql.enabled }}{{ ternary "cloudnativepg" "postgresql" $values.postgresql.cloudnativepg.enabled }}{{ else -}}
{{- if $values.externalDatabase.host }}external-postgresql{{ else }}sqlite{{ end -}}
{{- end -}}
{{- else if eq $service.store "valkey" -}}
{{- if $values.valkey.enabled }}valkey{{ else if $values.externalValkey.host }}external-valkey{{ else }}memory{{ end -}}
{{- end -}}
{{- end -}}

{{/* Secret with the certificate authority of a service's existing server, as JSON; {} if there is none: (list $ service). */}}
{{- define "shop.caSecret" -}}
{{- $values := (index . 0).Values -}}{{- $service := index . 1 -}}{{- $secret := dict -}}
{{- if eq (include "shop.store" .) "cloudnativepg" -}}
{{- $secret = dict "name" (include "shop.name" (list (index . 0) (printf "pg-%s-ca" $service.durability))) "key" "ca.crt" -}}
{{- else if not (or (has (include "shop.store" .) (list "sqlite" "memory" "")) (get $values $service.store).enabled) -}}
{{- $secret = (eq $service.store "valkey" | ternary $values.externalValkey $values.externalDatabase).caSecret -}}
{{- end -}}
{{- $secret.name | empty | ternary (dict) $secret | toJson -}}
{{- end -}}

{{/* Routes */}}

{{/* HTTP services with a route, as JSON, each with the host of its URL as `host`. */}}
{{- define "shop.routed" -}}
{{- $routed := dict -}}
{{- range $name, $service := .Computed.services -}}
{{- if and (eq $service.protocol "http") $service.exposed $service.url -}}
{{- $host := dict "host" ((urlParse $service.url).host | splitList ":" | first) -}}
{{- $_ := set $routed $name (merge $host $service) -}}
{{- end -}}
{{- end -}}
{{- toJson $routed -}}
{{- end -}}

{{/* Images */}}

{{/* A digest decides what is pulled; the tag beside it is for readers. Third-party images have both in `tag`. */}}
{{- define "shop.imageName" -}}
{{- $name := .repository -}}
{{- if .registry -}}{{- $name = printf "%s/%s" .registry $name -}}{{- end -}}
{{- if .tag -}}{{- $name = printf "%s:%s" $name .tag -}}{{- end -}}
{{- if .digest -}}{{- $name = printf "%s@%s" $name .digest -}}{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Image of a service: (list $ name service). With its own digest, it does not get the shared tag. */}}
{{- define "shop.image" -}}
{{- $root := index . 0 -}}{{- $own := (index . 2).image -}}
{{- $shared := $root.Values.image -}}
{{- $tag := $own.tag -}}
{{- if not $own.digest -}}{{- $tag = $own.tag | default $shared.tag | default $root.Chart.AppVersion -}}{{- end -}}
{{- $repository := printf "%s/%s" $shared.repository (index . 1) -}}
{{- include "shop.imageName" (dict "registry" $shared.registry "repository" $repository "tag" $tag "digest" $own.digest) -}}
{{- end -}}

{{/* Telemetry */}}

{{/* "true" if the release has a collector. */}}
{{- define "shop.collects" -}}
{{- if or .Values.observability.enabled .Values.observability.collector.enabled }}true{{ end -}}
{{- end -}}

{{/* "true" if the release has a log store. */}}
{{- define "shop.storesLogs" -}}
{{- if and .Values.observability.enabled .Values.observability.loki.enabled }}true{{ end -}}
{{- end -}}

{{/* The collector's exporters by signal, as JSON. */}}
{{- define "shop.collectorDestinations" -}}
{{- $observability := .Values.observability -}}{{- $own := $observability.enabled -}}
{{- $exportTo := $observability.collector.exportTo -}}
{{- $traces := list (and $own "otlp_grpc/jaeger") (and $exportTo.traces "otlp_http/traces") -}}
{{- $monitored := and $observability.serviceMonitor.enabled "prometheus" -}}
{{- $metrics := list (and $own "otlp_http/prometheus") (and $exportTo.metrics "otlp_http/metrics") $monitored -}}
{{- $logs := list (and (include "shop.storesLogs" .) "otlp_http/loki") (and $exportTo.logs "otlp_http/logs") -}}
{{- $none := list "debug" -}}
{{- dict "traces" (compact $traces) "metrics" (compact $metrics | default $none) "logs" (compact $logs | default $none) | toJson -}}
{{- end -}}

{{/* Port of a URL, by default its scheme's. */}}
{{- define "shop.urlPort" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}

{{/* The OTLP endpoint, empty without telemetry. Its port is explicit, since gRPC uses 443 even for http://host. */}}
{{- define "shop.otlpEndpoint" -}}
{{- if .Values.telemetry.endpoint -}}
{{- $url := urlParse .Values.telemetry.endpoint -}}
{{- $host := regexReplaceAll ":[0-9]+$" $url.host "" -}}
{{- printf "%s://%s:%s%s" $url.scheme $host (include "shop.urlPort" .Values.telemetry.endpoint) $url.path -}}
{{- else if include "shop.collects" . -}}
{{ ternary "https" "http" .Values.tls.enabled }}://{{ include "shop.name" (list . "otel-collector") }}:4317
{{- end -}}
{{- end -}}

{{/* Items of a pod's lists for the certificates of the OTLP endpoint; empty if there are none. */}}

{{- define "shop.otlpVolume" -}}
{{- $tls := .Values.telemetry.tls -}}
{{- if or $tls.caSecret.name $tls.clientSecret -}}
- name: otlp-tls
  projected:
    sources:
      {{- if $tls.caSecret.name }}
      - secret: {name: {{ $tls.caSecret.name }}, items: [{key: {{ $tls.caSecret.key }}, path: ca.crt}]}
      {{- end }}
      {{- if $tls.clientSecret }}
      - secret: {name: {{ $tls.clientSecret }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
      {{- end }}
{{- end -}}
{{- end -}}

{{- define "shop.otlpMount" -}}
{{- if include "shop.otlpVolume" . }}- {name: otlp-tls, mountPath: /etc/shop-otlp, readOnly: true}{{ end -}}
{{- end -}}

{{/* Times of a stop in seconds, as JSON; docs/scaling.md derives them. `connectionAge`: when a server closes a connection, so
     that its client resolves the name again; `preStop`: from the end of a pod's readiness to SIGTERM. */}}
{{- define "shop.shutdown" -}}
{{- $ttl := int .shutdown.dnsTtlSeconds -}}{{- $age := max 5 (div $ttl 2) -}}{{- $drain := 2 -}}
{{- /* gRPC adds up to a tenth to a connection's age. */ -}}
{{- $preStop := ternary (add 3 $ttl $age (div (add $age 9) 10)) 6 (eq .protocol "grpc") -}}
{{- $grace := add $preStop $drain (int .shutdown.graceSeconds) 5 -}}
{{- dict "connectionAge" $age "preStop" $preStop "drain" $drain "terminationGrace" $grace | toJson -}}
{{- end -}}
