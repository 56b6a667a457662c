{{/* What the schema can't see. Each check stops the render with the key to change. */}}
{{- define "shop.checks" -}}
{{- if gt (len .Release.Name) 30 -}}
{{- fail (printf "the release's name %q is longer than 30 characters: names made of it would not fit" .Release.Name) -}}
{{- end -}}
{{- $services := include "shop.services" . | fromJson -}}
{{- range $name, $service := $services -}}
{{- range $service.calls -}}
{{- if not (hasKey $services .) -}}
{{- fail (printf "services.%s.calls: there is no service %q" $name .) -}}
{{- end -}}
{{- end -}}
{{- if and (include "shop.usesSqlite" (list $ $service)) (or (gt (int $service.replicas) 1) $service.autoscaling.enabled) -}}
{{- fail (printf "services.%s.replicas: a SQLite file serves one pod; set postgresql.enabled, externalDatabase.host or services.%s.secretRefs.DATABASE_URL" $name $name) -}}
{{- end -}}
{{- if and (eq $service.store "valkey") (not $.Values.valkey.enabled) (not (hasKey $service.secretRefs "REDIS_URL")) (or (gt (int $service.replicas) 1) $service.autoscaling.enabled) -}}
{{- fail (printf "services.%s.replicas: what is kept in memory serves one pod; set valkey.enabled or services.%s.secretRefs.REDIS_URL" $name $name) -}}
{{- end -}}
{{- if and (include "shop.usesPassword" (list $ $service)) (not $.Values.postgresql.enabled) (not $service.existingSecret) -}}
{{- fail (printf "services.%s.existingSecret: an external database needs a Secret with the key database-password (or secretRefs.DATABASE_URL)" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.gateway.enabled (not .Values.gateway.parentRefs) -}}
{{- fail "gateway.parentRefs: the routes need a Gateway to attach to" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not (hasKey $services "employee-api")) -}}
{{- fail "ingress.enabled: there is no service \"employee-api\" to expose" -}}
{{- end -}}
{{- end -}}
