{{/* What all pods share: Pod Security "restricted", no API credentials, no variables for each Service in the namespace.
     (list $ name userId scheduling); empty keys of `scheduling` mean the chart's. */}}
{{- define "shop.podSpec" -}}
{{- $root := index . 0 -}}{{- $userId := index . 2 -}}
{{- $own := index . 3 -}}{{- $shared := $root.Values.scheduling -}}
serviceAccountName: {{ include "shop.name" (list $root (index . 1)) }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- if $root.Values.fixedIds }}
  runAsUser: {{ $userId }}
  runAsGroup: {{ $userId }}
  fsGroup: {{ $userId }}
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- include "shop.pullSecrets" $root }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $own $key | default (get $shared $key) }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "shop.pullSecrets" }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Metadata of a pod, with additional labels and annotations: (list $ workload component own). */}}
{{- define "shop.podMetadata" -}}
labels:
  {{- include "shop.workloadSelector" . | nindent 2 }}
  app.kubernetes.io/part-of: shop
  app.kubernetes.io/component: {{ index . 2 }}
  {{- with (index . 3).labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with (index . 3).annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "shop.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What containers of jobs share; they run checkout's image: (list $ resources). */}}
{{- define "shop.jobContainer" -}}
{{- $root := index . 0 -}}
{{- $checkout := include "shop.merged" (list $root.Values.defaults ($root.Values.services.checkout | default dict)) | fromJson -}}
image: {{ include "shop.image" (list $root "checkout" $checkout) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext: {{- include "shop.containerSecurity" . | nindent 2 }}
resources: {{- toYaml (index . 1) | nindent 2 }}
{{- end -}}

{{/* Additional containers, with the restricted security context unless they have one. */}}
{{- define "shop.containers" -}}
{{- $security := dict "securityContext" (include "shop.containerSecurity" . | fromYaml) -}}
{{- range . }}
- {{- hasKey . "securityContext" | ternary . (merge (deepCopy .) $security) | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A service's volumes: (list $ name service). */}}
{{- define "shop.volumes" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $service := index . 2 -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: data
  {{- if eq (include "shop.store" (list $root $service)) "sqlite" }}
  persistentVolumeClaim: {claimName: {{ include "shop.name" (list $root $name) }}}
  {{- else }}
  emptyDir: {sizeLimit: 256Mi}
  {{- end }}
{{- if $service.files }}
- name: files
  configMap: {name: {{ include "shop.name" (list $root $name) }}}
{{- end }}
{{- if $root.Values.lab.enabled }}
- name: modules
  configMap: {name: {{ include "shop.name" (list $root $name) }}-modules, optional: true}
{{- end }}
{{- with include "shop.caSecret" (list $root $service) | fromJson }}
- name: ca
  secret: {secretName: {{ .name }}, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- include "shop.tlsVolume" (list $root $name) | nindent 0 }}
{{- include "shop.otlpVolume" $root | nindent 0 }}
{{- with $service.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "shop.mounts" -}}
{{- $service := index . 1 -}}
- {name: tmp, mountPath: /tmp}
- {name: data, mountPath: /data}
{{- if $service.files }}
- {name: files, mountPath: /etc/shop, readOnly: true}
{{- end }}
{{- if (index . 0).Values.lab.enabled }}
- {name: modules, mountPath: /modules, readOnly: true}
{{- end }}
{{- if include "shop.caSecret" . | fromJson }}
- {name: ca, mountPath: /etc/shop-ca, readOnly: true}
{{- end }}
{{- include "shop.tlsMount" (index . 0) | nindent 0 }}
{{- include "shop.otlpMount" (index . 0) | nindent 0 }}
{{- with $service.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Each probe gets one handler, by protocol: merging values could leave two. gRPC has a port for probes:
     kubelet's speak no TLS before Kubernetes 1.37, and clients may fill the others. What a node sends to its pods passes
     network policies. */}}
{{- define "shop.probes" -}}
{{- $name := index . 0 -}}{{- $service := index . 1 -}}
{{- $live := printf "httpGet: {path: /healthz, port: %v}" $service.port -}}
{{- $ready := printf "httpGet: {path: /readyz, port: %v}" $service.port -}}
{{- if eq $service.protocol "grpc" -}}
{{- $live = "grpc: {port: 50053, service: liveness}" -}}
{{- $ready = printf "grpc: {port: 50053, service: %s}" (include "shop.grpcName" $name) -}}
{{- end -}}
startupProbe:
  {{ $live }}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  {{ $ready }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  {{ $live }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}
