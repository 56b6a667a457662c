{{/* What the schema can't express. Each check fails the render and names the key to change. */}}
{{- define "shop.checks" -}}
{{- $values := .Values -}}{{- $services := .Computed.services -}}
{{- $fullname := include "shop.fullname" . -}}{{- $external := $values.externalDatabase -}}
{{- $cloudnativepg := $values.postgresql.cloudnativepg.enabled -}}
{{- $routes := or $values.gateway.enabled $values.ingress.enabled -}}
{{- /* Once the manifest has forgotten a key, repeating its order would ship it again. */ -}}
{{- $shipments := dig "shipping" "env" "RETENTION_DAYS" 0 $services | float64 -}}
{{- $orders := dig "checkout" "env" "RETENTION_DAYS" 0 $services | float64 -}}
{{- include "shop.refuse" (dict
  "enabled: only the `condition` of an umbrella chart's dependency can leave out the shop" (not $values.enabled)
  (printf "fullnameOverride: names can't begin with %q; set at most 30 lowercase letters, digits and hyphens, a letter first" $fullname)
    (not (regexMatch "^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$" $fullname))
  (printf "externalDatabase.caSecret.name: sslmode %s needs a Secret with the server's certificate authority" $external.sslmode)
    (and (not $values.postgresql.enabled) (hasPrefix "verify-" $external.sslmode) (not $external.caSecret.name))
  "postgresql.cloudnativepg.enabled: it needs postgresql.enabled" (and $cloudnativepg (not $values.postgresql.enabled))
  "postgresql.cloudnativepg.enabled: the cluster has no CloudNativePG operator; offline, render with --api-versions postgresql.cnpg.io/v1"
    (and $cloudnativepg (not (.Capabilities.APIVersions.Has "postgresql.cnpg.io/v1")))
  "gateway.parentRefs: the routes need a Gateway to attach to" (and $values.gateway.enabled (not $values.gateway.parentRefs))
  "lab.enabled: it breaks services on purpose, so not with externalDatabase.host, externalValkey.host, gateway.enabled or ingress.enabled"
    (and $values.lab.enabled (or $external.host $values.externalValkey.host $routes))
  "lab.enabled: it breaks services on purpose, so not with networkPolicy.ingressFrom" (and $values.lab.enabled $values.networkPolicy.ingressFrom)
  "development: it makes containers writable, so not with gateway.enabled or ingress.enabled" (and $values.development $routes)
  "load.enabled: there is no service \"storefront\" to visit" (and $values.load.enabled (not (hasKey $services "storefront")))
  (printf "services.shipping.env.RETENTION_DAYS: %v days are fewer than the %v days of services.checkout" $shipments $orders)
    (and (hasKey $services "shipping") (lt $shipments $orders))
) -}}
{{- range $name, $service := $services -}}
{{- include "shop.serviceChecks" (list $ $name $service) -}}
{{- include "shop.versionChecks" (list $name $service.versions) -}}
{{- end -}}
{{- range .Computed.workloads -}}
{{- include "shop.podChecks" (list $ .name .) -}}
{{- end -}}
{{- include "shop.meshChecks" . -}}
{{- include "shop.telemetryChecks" . -}}
{{- include "shop.tlsChecks" . -}}
{{- with $services.storefront -}}
{{- include "shop.refuse" (dict
  "services.storefront.env.TRUSTED_PROXIES: name the addresses or networks of what the url leads to, or its limits know no client"
    (and $routes (hasKey $.Computed.routed "storefront") (not (merge dict .env .secretRefs).TRUSTED_PROXIES))
) -}}
{{- end -}}
{{- include "shop.employeeCheck" (get $services "employee-api" | default dict) -}}
{{- include "shop.alertChecks" . -}}
{{- end -}}

{{/* Fails with the first message, in alphabetical order, whose condition is true. */}}
{{- define "shop.refuse" -}}
{{- range $message, $condition := . -}}{{- if $condition -}}{{- fail $message -}}{{- end -}}{{- end -}}
{{- end -}}

{{/* Settings of an existing endpoint need one, and a collector needs somewhere to send to. */}}
{{- define "shop.telemetryChecks" -}}
{{- $telemetry := .Values.telemetry -}}{{- $observability := .Values.observability -}}
{{- $collects := include "shop.collects" . -}}{{- $monitor := $observability.serviceMonitor -}}
{{- $exportTo := $observability.collector.exportTo -}}
{{- $destinations := or $exportTo.traces $exportTo.metrics $exportTo.logs -}}
{{- include "shop.refuse" (dict
  "telemetry.tls: certificates need a telemetry.endpoint that begins with https://"
    (and (or $telemetry.tls.caSecret.name $telemetry.tls.clientSecret) (not (hasPrefix "https://" (default "" $telemetry.endpoint))))
  "telemetry.headersSecret.name: headers need a telemetry.endpoint; those of the chart's collector are in observability.collector.exportTo"
    (and $telemetry.headersSecret.name (not $telemetry.endpoint))
  (printf "telemetry.protocol: %s needs a telemetry.endpoint; the chart's collector receives grpc" $telemetry.protocol)
    (and (ne $telemetry.protocol "grpc") (not $telemetry.endpoint))
  "observability.collector.exportTo: a collector without observability.enabled needs traces, metrics, logs or a serviceMonitor"
    (and $observability.collector.enabled (not $observability.enabled) (not $destinations) (not $monitor.enabled))
  "observability.collector.enabled: exportTo is for the chart's collector, which is not enabled" (and $destinations (not $collects))
  "observability.serviceMonitor.enabled: it selects the chart's collector; enable observability.collector, too"
    (and $monitor.enabled (not $collects))
  "observability.serviceMonitor.from: the network policy admits no Prometheus; name the peers that scrape"
    (and $monitor.enabled .Values.networkPolicy.enabled (not $monitor.from))
) -}}
{{- end -}}

{{/* A public employee API must state its AUTH_MODE, and its limits must not count all clients of a proxy as one. */}}
{{- define "shop.employeeCheck" -}}
{{- if and .url .exposed -}}
{{- $env := merge dict .env .secretRefs -}}{{- $at := "services.employee-api.env" -}}
{{- include "shop.refuse" (dict
  (print $at ".AUTH_MODE: the API has a public url; set enforce, or \"off\" for full access without a sign-in") (not $env.AUTH_MODE)
  (print $at ".TRUSTED_PROXIES: name the addresses or networks of what the url leads to, or all clients share one")
    (and (ne (toString $env.AUTH_MODE) "off") (not $env.TRUSTED_PROXIES))
  (print $at ".ALLOWED_HOSTS: it is empty; without the variable, they are those of the Service and the url")
    (and (hasKey $env "ALLOWED_HOSTS") (not $env.ALLOWED_HOSTS))
) -}}
{{- end -}}
{{- end -}}

{{- define "shop.serviceChecks" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $service := index . 2 -}}
{{- $unused := get (dict "postgresql" "REDIS_URL" "valkey" "DATABASE_URL") $service.store -}}
{{- $store := include "shop.store" (list $root $service) -}}
{{- $scaling := $service.autoscaling -}}{{- $scales := printf "services.%s.autoscaling" $name -}}
{{- $several := or (gt (int $service.replicas) 1) $scaling.enabled -}}
{{- /* A route without a host would match every host, so a service without a URL has none. */ -}}
{{- $routes := or $root.Values.gateway.enabled $root.Values.ingress.enabled -}}
{{- include "shop.refuse" (dict
  (printf "services.%s.replicas: a SQLite file supports one replica; set postgresql.enabled, externalDatabase.host or services.%s.secretRefs.DATABASE_URL" $name $name)
    (and $several (eq $store "sqlite"))
  (printf "services.%s.replicas: a store in memory supports one replica; set valkey.enabled, externalValkey.host or services.%s.secretRefs.REDIS_URL" $name $name)
    (and $several (eq $store "memory"))
  (printf "services.%s.existingSecret: an external database needs a Secret with the key database-password (or secretRefs.DATABASE_URL)" $name)
    (and (eq $store "external-postgresql") (not $service.existingSecret))
  (printf "externalValkey.existingSecret: an external Valkey needs a Secret with the key valkey-password (or services.%s.secretRefs.REDIS_URL)" $name)
    (and (eq $store "external-valkey") (not $root.Values.externalValkey.existingSecret))
  (printf "services.%s.store: it is %s; remove %s" $name $service.store $unused)
    (or (hasKey $service.env $unused) (hasKey $service.secretRefs $unused))
  (printf "services.%s.env.TRUSTED_PROXIES: with a network of all addresses, clients choose their address" $name)
    (regexMatch "/0+(,|$)" (toString $service.env.TRUSTED_PROXIES | nospace))
  (printf "services.%s.secretRefs: lab.enabled breaks services on purpose, so not with a database or store elsewhere" $name)
    (and $root.Values.lab.enabled (or $service.secretRefs.DATABASE_URL $service.secretRefs.REDIS_URL))
  (printf "services.%s.env: LAB and FAILPOINTS break services on purpose; they need lab.enabled" $name)
    (and (not $root.Values.lab.enabled) (or (hasKey $service.env "LAB") (hasKey $service.env "FAILPOINTS")))
  (printf "services.%s.durability: its ledger must not lose a commit, as %s may; set required" $name $service.durability)
    (and (has $name (list "payment" "shipping")) (ne $service.durability "required"))
  "services.storefront.url: routes need the public URL of an HTTP service, such as https://shop.example.com"
    (and $routes (eq $service.protocol "http") $service.exposed (not $root.Computed.routed))
  (printf "%s.maxReplicas: %v are fewer than the minReplicas, %v" $scales $scaling.maxReplicas $scaling.minReplicas)
    (and $scaling.enabled (gt $scaling.minReplicas $scaling.maxReplicas))
  (print $scales ".keda: the cluster has no KEDA operator; offline, render with --api-versions keda.sh/v1alpha1")
    (and $scaling.enabled $scaling.keda (not ($root.Capabilities.APIVersions.Has "keda.sh/v1alpha1")))
  (print $scales ".keda.prometheusUrl: without observability.enabled there is no Prometheus of the chart's; name another")
    (and $scaling.enabled $scaling.keda (not $scaling.keda.prometheusUrl) (not $root.Values.observability.enabled))
) -}}
{{- end -}}

{{/* A version's name is the value of the service's variable; weights are shares of its calls: (list name versions). */}}
{{- define "shop.versionChecks" -}}
{{- $name := index . 0 -}}{{- $versions := index . 1 -}}{{- $sum := include "shop.weights" $versions -}}
{{- $known := get (dict "recommendation" (list "v1" "v2" "v3")) $name | default list -}}
{{- $refused := dict (printf "services.%s.versions: the weights add up to %s, not 100" $name $sum) (and $sum (ne $sum "100")) -}}
{{- range $version, $_ := $versions -}}
{{- $has := join ", " $known | default "none" -}}
{{- $_ := set $refused (printf "services.%s.versions: there is no version %q; the service has %s" $name $version $has) (not (has $version $known)) -}}
{{- end -}}
{{- include "shop.refuse" $refused -}}
{{- end -}}

{{/* Lists of a pod are keyed by name or path: Kubernetes and server-side apply reject a key that appears twice. */}}
{{- define "shop.podChecks" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $service := index . 2 -}}
{{- $refused := dict -}}
{{- range $variable, $_ := $service.env -}}
{{- $_ := set $refused (printf "services.%s.env: %s is in secretRefs, too" $name $variable) (hasKey $service.secretRefs $variable) -}}
{{- end -}}
{{- $containers := list (dict "name" $name) (dict "name" "migrate") -}}
{{- $lists := dict
  "volumes" (list "name" (include "shop.volumes" . | fromYamlArray))
  "volumeMounts" (list "mountPath" (include "shop.mounts" (list $root $service) | fromYamlArray))
  "sidecars" (list "name" (concat $containers $service.initContainers $service.sidecars)) -}}
{{- range $list, $content := $lists -}}
{{- $keys := list -}}
{{- range index $content 1 -}}
{{- $key := get . (index $content 0) -}}
{{- if has $key $keys }}{{ $_ := set $refused (printf "services.%s.%s: %q is already used by the pod" $name $list $key) true }}{{ end -}}
{{- $keys = append $keys $key -}}
{{- end -}}
{{- end -}}
{{- include "shop.refuse" $refused -}}
{{- end -}}
