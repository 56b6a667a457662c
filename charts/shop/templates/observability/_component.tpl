{{/* A Deployment of one pod, its configuration and its Service: (dict "root" $ "name" … "values" … "userId" … "ports"
     (dict name port) "files" (dict name content) "health" (dict port ready live startSeconds) "env" list "container" yaml
     "data" (dict path size) "volumes" yaml). A container ends with its mounts; one with an `env` gets no other. */}}
{{- define "shop.component" -}}
{{- $checksum := dict "checksum/config" (toJson .files | sha256sum | trunc 16) -}}
{{- $mesh := .root.Computed.mesh }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "shop.metadata" (list .root .name 3) | nindent 2 }}
spec:
  replicas: 1
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "shop.selector" (list .root .name) | nindent 6 }}
  template:
    metadata:
      {{- include "shop.podMetadata" (list .root . "observability" (dict "annotations" $checksum)) | nindent 6 }}
    spec:
      {{- include "shop.podSpec" (list .root .name .userId (dict)) | nindent 6 }}
      containers:
        - name: {{ .name }}
          image: {{ include "shop.imageName" .values.image }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          ports:
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          {{- if not (hasPrefix "env:" .container) }}
          env:
            - name: GOMEMLIMIT
              valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: "1"}}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
          readinessProbe:
            httpGet: {path: {{ .health.ready }}, port: {{ .health.port }}}
          livenessProbe:
            httpGet: {path: {{ .health.live }}, port: {{ .health.port }}}
            failureThreshold: 6
            {{- with .health.startSeconds }}
            initialDelaySeconds: {{ . }}
            {{- end }}
          securityContext:
            {{- include "shop.containerSecurity" . | nindent 12 }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          {{- .container | nindent 10 }}
            - {name: tmp, mountPath: /tmp}
            {{- with .data }}
            - {name: data, mountPath: {{ .path }}}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        - name: config
          configMap: {name: {{ include "shop.name" (list .root .name) }}}
        {{- with .data }}
        - name: data
          emptyDir: {sizeLimit: {{ .size }}}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "shop.metadata" (list .root .name) | nindent 2 }}
data:
  {{- range $name, $content := .files }}
  {{ $name }}: {{ $content | quote }}
  {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "shop.metadata" (list .root .name) | nindent 2 }}
spec:
  selector:
    {{- include "shop.selector" (list .root .name) | nindent 4 }}
  ports:
    {{- range $name, $port := .ports }}
    - {name: {{ $name }}, port: {{ $port }}{{ with $mesh }}, appProtocol: {{ eq $name "otlp" | ternary .grpc .tcp }}{{ end }}}
    {{- end }}
{{- end -}}
