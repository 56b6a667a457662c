{{/* A deployment of one pod with a configuration file: (list $ name values ports container volumes). */}}
{{- define "shop.part" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}{{- $values := index . 2 -}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "shop.metadata" (list $root $name) | nindent 2 }}
spec:
  replicas: 1
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "shop.selector" (list $root $name) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "shop.selector" (list $root $name) | nindent 8 }}
        app.kubernetes.io/part-of: shop
        app.kubernetes.io/component: observability
      annotations:
        checksum/config: {{ index . 5 | sha256sum | trunc 16 }}
    spec:
      {{- include "shop.podSpec" (list $root $name (index . 4)) | nindent 6 }}
      containers:
        - name: {{ $name }}
          image: {{ include "shop.imageName" $values.image }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          securityContext:
            {{- include "shop.containerSecurity" . | nindent 12 }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          {{- index . 6 | nindent 10 }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        - name: config
          configMap: {name: {{ include "shop.name" (list $root $name) }}}
        {{- with index . 7 }}
        {{- . | nindent 8 }}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "shop.metadata" (list $root $name) | nindent 2 }}
spec:
  selector:
    {{- include "shop.selector" (list $root $name) | nindent 4 }}
  ports:
    {{- range $portName, $port := index . 3 }}
    - {name: {{ $portName }}, port: {{ $port }}}
    {{- end }}
{{- end -}}
