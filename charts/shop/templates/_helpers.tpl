{{/* Names and labels */}}

{{- define "shop.name" -}}
{{- printf "%s-%s" (index . 0).Release.Name (index . 1) -}}
{{- end -}}

{{/* Labels that select the pods of a part: (list $ "cart"). They never change: selectors and volume claims hold them. */}}
{{- define "shop.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end -}}

{{- define "shop.labels" -}}
{{ include "shop.selector" . }}
app.kubernetes.io/part-of: shop
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "shop.metadata" -}}
name: {{ include "shop.name" . }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "shop.labels" . | nindent 2 }}
{{- end -}}

{{/* Services: each entry laid over the defaults, false and 0 included (which sprig's merge would drop). */}}

{{- define "shop.merged" -}}
{{- $base := index . 0 -}}
{{- $result := deepCopy $base -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
{{- $_ := set $result $key (include "shop.merged" (list (get $base $key) $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}

{{- define "shop.services" -}}
{{- $services := dict -}}
{{- range $name, $own := .Values.services -}}
{{- if not (kindIs "invalid" $own) -}}
{{- $service := include "shop.merged" (list $.Values.defaults $own) | fromJson -}}
{{- $_ := set $service "port" (ternary 50051 8000 (eq $service.protocol "grpc")) -}}
{{- $_ := set $services $name $service -}}
{{- end -}}
{{- end -}}
{{- toJson $services -}}
{{- end -}}

{{/* The name under which a gRPC service tells its readiness: product-catalog is shop.ProductCatalogService. */}}
{{- define "shop.grpcName" -}}
shop.{{ . | replace "-" " " | title | replace " " "" }}Service
{{- end -}}

{{/* ADDR variables: product-catalog is PRODUCT_CATALOG_ADDR. */}}
{{- define "shop.variable" -}}
{{- . | upper | replace "-" "_" -}}
{{- end -}}

{{/* A service's database and role in PostgreSQL. */}}
{{- define "shop.role" -}}
{{- . | replace "-" "_" -}}
{{- end -}}

{{- define "shop.usesSqlite" -}}
{{- $root := index . 0 -}}{{- $service := index . 1 -}}
{{- if and (eq $service.store "postgresql") (not $root.Values.postgresql.enabled) (not $root.Values.externalDatabase.host) (not (hasKey $service.secretRefs "DATABASE_URL")) -}}
true
{{- end -}}
{{- end -}}

{{- define "shop.usesPassword" -}}
{{- $root := index . 0 -}}{{- $service := index . 1 -}}
{{- if and (eq $service.store "postgresql") (or $root.Values.postgresql.enabled $root.Values.externalDatabase.host) (not (hasKey $service.secretRefs "DATABASE_URL")) -}}
true
{{- end -}}
{{- end -}}

{{/* Images: a digest wins over the tag. */}}
{{- define "shop.imageName" -}}
{{- $name := .repository -}}
{{- if .registry -}}{{- $name = printf "%s/%s" .registry $name -}}{{- end -}}
{{- if .digest -}}{{ $name }}@{{ .digest }}{{- else -}}{{ $name }}:{{ .tag }}{{- end -}}
{{- end -}}

{{- define "shop.image" -}}
{{- $root := index . 0 -}}{{- $own := (index . 2).image -}}
{{- $shared := $root.Values.image -}}
{{- $tag := $own.tag | default $shared.tag | default $root.Chart.AppVersion -}}
{{- include "shop.imageName" (dict "registry" $shared.registry "repository" (printf "%s/%s" $shared.repository (index . 1)) "tag" $tag "digest" $own.digest) -}}
{{- end -}}

{{/* Where telemetry goes; empty when nowhere. */}}
{{- define "shop.otlpEndpoint" -}}
{{- if .Values.telemetry.endpoint -}}
{{ .Values.telemetry.endpoint }}
{{- else if .Values.observability.enabled -}}
http://{{ include "shop.name" (list . "otel-collector") }}:4317
{{- end -}}
{{- end -}}

{{/* What every pod has: Pod Security "restricted", no credentials of the cluster, no variables for each Service. */}}
{{- define "shop.podSpec" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $userId := index . 2 -}}
serviceAccountName: {{ include "shop.name" (list $root $name) }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $userId }}
  runAsGroup: {{ $userId }}
  fsGroup: {{ $userId }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $root.Values.scheduling.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.scheduling.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.scheduling.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "shop.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
