{{/* Mutual TLS: each name below has a Secret `<release>-<name>-tls`, whose files Kubernetes replaces in place. */}}

{{/* Components with a certificate, as JSON: services, their clients, and servers that hold or see customers' data.
     Jaeger, Prometheus and Loki have none: telemetry names no customer, and `exportTo` takes https. */}}
{{- define "shop.certified" -}}
{{- $names := .Computed.components -}}
{{- without $names "alertmanager" "grafana" "jaeger" "load-generator" "loki" "prometheus" | toJson -}}
{{- end -}}

{{- define "shop.tlsSecret" -}}
{{- include "shop.name" . }}-tls
{{- end -}}

{{/* DNS names of a component's Service, as JSON. Its certificate must have the one that a client connects to. */}}
{{- define "shop.dnsNames" -}}
{{- $name := include "shop.name" . -}}{{- $qualified := printf "%s.%s" $name (index . 0).Release.Namespace -}}
{{- list $name $qualified (print $qualified ".svc") (print $qualified ".svc.cluster.local") | toJson -}}
{{- end -}}

{{/* Items of a pod's lists for a component's certificate: (list $ name). The pod's group may read it. */}}
{{- define "shop.tlsVolume" -}}
{{- if (index . 0).Values.tls.enabled -}}
- name: tls
  secret: {secretName: {{ include "shop.tlsSecret" . }}, defaultMode: 0440}
{{- end -}}
{{- end -}}

{{- define "shop.tlsMount" -}}
{{- if .Values.tls.enabled }}- {name: tls, mountPath: /etc/shop-tls, readOnly: true}{{ end -}}
{{- end -}}

{{/* A server outside the release that is not verified must be a decision. */}}
{{- define "shop.tlsChecks" -}}
{{- $tls := .Values.tls -}}
{{- $refused := dict
  "tls.issuerRef.name: cert-manager needs the name of an issuer"
    (and (eq $tls.issuer "cert-manager") (not ($tls.issuerRef | default dict).name))
  "tls.issuer: the cluster has no cert-manager; offline, render with --api-versions cert-manager.io/v1"
    (and $tls.enabled (eq $tls.issuer "cert-manager") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")))
  "gateway.grpcHostnames: with tls.enabled the Gateway needs a client certificate, a BackendTLSPolicy and its calls in tls.callers"
    (and $tls.enabled .Values.gateway.enabled .Values.gateway.grpcHostnames (not $tls.callers)) -}}
{{- $exportTo := .Values.observability.collector.exportTo | values | join " " -}}
{{- $plain := dict
  "telemetry.endpoint" (hasPrefix "http:" (default "" .Values.telemetry.endpoint))
  "externalDatabase.sslmode" (and (not .Values.postgresql.enabled) (not (hasPrefix "verify-" .Values.externalDatabase.sslmode)))
  "observability.collector.exportTo" (contains "http:" $exportTo)
  "externalValkey.tls" (not (or .Values.valkey.enabled .Values.externalValkey.tls)) -}}
{{- range $key, $is := $plain -}}
{{- $message := printf "%s: it is plaintext or not verified, which tls.enabled allows only if tls.plaintext lists it" $key -}}
{{- $_ := set $refused $message (and $tls.enabled $is (not (has $key $tls.plaintext))) -}}
{{- end -}}
{{- include "shop.refuse" $refused -}}
{{- end -}}
