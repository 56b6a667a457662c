{{/* Mutual TLS: each name below has a Secret `<release>-<name>-tls`, whose files Kubernetes replaces in place. */}}

{{/* Names that have a certificate, as JSON: services, their clients, and the servers that hold or see customers' data.
     Jaeger, Prometheus and Loki have none: telemetry names no customer, and `exportTo` takes https. */}}
{{- define "shop.certified" -}}
{{- $names := list -}}
{{- if .Values.tls.enabled -}}
{{- $names = include "shop.services" . | fromJson | keys -}}
{{- if include "shop.tests" . -}}{{- $names = append $names "test" -}}{{- end -}}
{{- if .Values.postgresql.enabled -}}{{- $names = append $names "postgresql" -}}{{- end -}}
{{- if .Values.valkey.enabled -}}{{- $names = append $names "valkey" -}}{{- end -}}
{{- if include "shop.collects" . -}}{{- $names = append $names "otel-collector" -}}{{- end -}}
{{- if include "shop.reconciles" . -}}{{- $names = append $names "reconciliation" -}}{{- end -}}
{{- end -}}
{{- $names | sortAlpha | toJson -}}
{{- end -}}

{{/* Port of the health service for probes, in plaintext; empty without TLS. */}}
{{- define "shop.healthPort" -}}
{{- if .Values.tls.enabled }}50053{{ end -}}
{{- end -}}

{{- define "shop.grpcProtocol" -}}
{{- ternary "https" "kubernetes.io/h2c" .Values.tls.enabled -}}
{{- end -}}

{{- define "shop.tlsSecret" -}}
{{- include "shop.name" . }}-tls
{{- end -}}

{{/* Names in a component's certificate, as JSON. A client must find the one that it connects to. */}}
{{- define "shop.dnsNames" -}}
{{- $name := include "shop.name" . -}}{{- $namespace := (index . 0).Release.Namespace -}}
{{- list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.cluster.local" $name $namespace) | toJson -}}
{{- end -}}

{{/* Volume with a component's certificate, and its mount: (list $ name); empty without TLS. The pod's group may read it. */}}

{{- define "shop.tlsVolume" -}}
{{- if (index . 0).Values.tls.enabled -}}
name: tls
secret: {secretName: {{ include "shop.tlsSecret" . }}, defaultMode: 0440}
{{- end -}}
{{- end -}}

{{- define "shop.tlsMount" -}}
{{- if .Values.tls.enabled -}}
{name: tls, mountPath: /etc/shop-tls, readOnly: true}
{{- end -}}
{{- end -}}

{{/* Plaintext to a server outside the release must be a decision. */}}
{{- define "shop.tlsChecks" -}}
{{- $tls := .Values.tls -}}{{- $external := .Values.externalDatabase -}}
{{- if ne (empty $tls.issuerRef.name) (ne $tls.issuer "cert-manager") -}}
{{- fail (printf "tls.issuerRef.name: the issuer of cert-manager, and of it alone; tls.issuer is %s" $tls.issuer) -}}
{{- end -}}
{{- $plain := dict
  "telemetry.endpoint" (hasPrefix "http:" (default "" .Values.telemetry.endpoint))
  "externalDatabase.sslmode" (and (not .Values.postgresql.enabled) $external.host (has $external.sslmode (list "disable" "allow" "prefer")))
  "externalValkey.tls" (and (not .Values.valkey.enabled) .Values.externalValkey.host (not .Values.externalValkey.tls)) -}}
{{- range $key, $is := $plain -}}
{{- if and $tls.enabled $is (not (has $key $tls.plaintext)) -}}
{{- fail (printf "%s: it is plaintext, which tls.enabled allows only if tls.plaintext lists it" $key) -}}
{{- end -}}
{{- end -}}
{{- if and $tls.enabled .Values.gateway.enabled .Values.gateway.grpcHostnames (not $tls.callers) -}}
{{- fail "gateway.grpcHostnames: with tls.enabled the Gateway needs a client certificate, a BackendTLSPolicy and its calls in tls.callers" -}}
{{- end -}}
{{- end -}}
