{{/* What a service mesh changes, as JSON; {} without one. `control`: ports of the mesh's servers that proxies connect to;
     `scraped`: ports of proxies that its own pods connect to; `tunnel`: the port at which connections of pods in the mesh
     arrive instead of their own; `proxy`: the address from which a pod's own proxy connects to it; `outside`: what keeps a
     pod out of the mesh. */}}
{{- define "shop.mesh" -}}
{{- $istio := dict
  "apis" (list "security.istio.io/v1")
  "control" (list (dict "port" 15012)) "scraped" (list (dict "port" 15020) (dict "port" 15021))
  "grpc" "grpc" "tcp" "tcp" -}}
{{- $meshes := dict
  "sidecar istio" (merge (dict
    "labels" (dict "sidecar.istio.io/inject" "true")
    "annotations" (dict "sidecar.istio.io/nativeSidecar" "true")
    "outside" (dict "labels" (dict "sidecar.istio.io/inject" "false"))
    "proxy" "127.0.0.0/8") $istio)
  "ambient istio" (merge (dict
    "apis" (list "security.istio.io/v1" "gateway.networking.k8s.io/v1")
    "labels" (dict "istio.io/dataplane-mode" "ambient")
    "outside" (dict "labels" (dict "istio.io/dataplane-mode" "none"))
    "tunnel" 15008) $istio)
  "sidecar linkerd" (dict
    "apis" (list "policy.linkerd.io/v1beta3" "gateway.networking.k8s.io/v1")
    "annotations" (dict "linkerd.io/inject" "enabled" "config.beta.linkerd.io/proxy-enable-native-sidecar" "true")
    "outside" (dict "annotations" (dict "linkerd.io/inject" "disabled"))
    "control" (list (dict "port" 8080) (dict "port" 8086) (dict "port" 8090)) "scraped" (list (dict "port" 4191))
    "grpc" "kubernetes.io/h2c" "tcp" "linkerd.io/opaque"
    "proxy" "127.0.0.0/8"
    "tunnel" 4143) -}}
{{- get $meshes (printf "%s %s" .Values.mesh .Values.meshPolicies) | default dict | toJson -}}
{{- end -}}

{{/* Host of a gRPC service for its clients: (list $ name). Behind a headless Service, a proxy keeps sending to the pod that
     the client chose, even once it is gone. A Service's clusterIP cannot be changed, so the mesh has a second Service. */}}
{{- define "shop.host" -}}
{{- include "shop.name" . -}}
{{- if ne (index . 0).Values.mesh "none" -}}-clusterip{{- end -}}
{{- end -}}

{{- define "shop.meshChecks" -}}
{{- $mesh := .Computed.mesh -}}{{- $meshed := ne .Values.mesh "none" -}}
{{- $missing := list -}}{{- $nameless := list -}}{{- $apis := $mesh.apis | default list -}}
{{- range .Computed.services -}}
{{- if and $mesh (include "shop.weights" .versions) -}}{{- $apis = append $apis "gateway.networking.k8s.io/v1" -}}{{- end -}}
{{- end -}}
{{- range uniq $apis -}}
{{- if not ($.Capabilities.APIVersions.Has .) -}}{{- $missing = append $missing . -}}{{- end -}}
{{- end -}}
{{- range .Values.networkPolicy.ingressFrom -}}
{{- if not (include "shop.namespaceOf" .) -}}{{- $nameless = append $nameless . -}}{{- end -}}
{{- end -}}
{{- include "shop.refuse" (dict
  (printf "mesh: %s has no %s mode; set mesh to sidecar, or meshPolicies to istio" .Values.meshPolicies .Values.mesh)
    (and $meshed (not $mesh))
  "mesh: its proxies encrypt, and see no methods of calls that are encrypted already; disable tls, or set mesh to none"
    (and $meshed .Values.tls.enabled)
  (printf "mesh: the cluster has no %s; install %s first, or render offline with --api-versions %[1]s" (join "," $missing) .Values.meshPolicies)
    $missing
  "networkPolicy.ingressFrom: a mesh knows callers by their namespaces; select each by the label kubernetes.io/metadata.name"
    (and $meshed $nameless)
) -}}
{{- end -}}

{{/* Name of the namespace that a network policy's peer selects; empty if it selects by anything else. */}}
{{- define "shop.namespaceOf" -}}
{{- dig "namespaceSelector" "matchLabels" "kubernetes.io/metadata.name" "" . -}}
{{- end -}}
