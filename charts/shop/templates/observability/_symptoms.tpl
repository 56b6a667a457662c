{{/* Alerts on what is wrong in the shop, whether or not an SLO shows it. A page is for what customers notice now. Every
     replica reports the counts of the shared journal or spool, so these are not summed. */}}
{{- define "shop.symptomRules" -}}
{{- $in := printf "k8s_namespace_name=%q" .Release.Namespace -}}
{{- $service := "{{ $labels.service_name }}" -}}
{{- $instance := "{{ $labels.service_instance_id }}" -}}
- name: orders
  rules:
    - alert: OrderOpenTooLong
      expr: max(shop_orders_oldest_open_age_seconds{ {{- $in -}} }) > 60
      for: 1m
      labels: {severity: page}
      annotations:
        summary: An order is neither finished nor refused for more than a minute
        description: Payment, shipping or checkout's database is down or slow, or an order fails every time.
    - alert: RefundsNeeded
      expr: max(shop_orders_needs_operator_age_seconds{ {{- $in -}} ,shop_order_state="NEEDS_REFUND"}) > 300
      annotations:
        summary: A charge could not be released, and no operator has settled its order
        description: "Refund the orders in state NEEDS_REFUND by hand, and settle them. The oldest waits for {{ "{{ $value | humanizeDuration }}" }}."
    - alert: ReviewsNeeded
      expr: max(shop_orders_needs_operator_age_seconds{ {{- $in -}} ,shop_order_state="NEEDS_REVIEW"}) > 300
      annotations:
        summary: It is unknown whether charged orders were shipped, and no operator has settled them
        description: "Settle the orders in state NEEDS_REVIEW. The oldest waits for {{ "{{ $value | humanizeDuration }}" }}."
    - alert: OutboxDelayed
      expr: max(shop_outbox_oldest_age_seconds{ {{- $in -}} }) > 300
      for: 1m
      annotations:
        summary: A confirmation, or the emptying of a cart, waits for more than five minutes
        description: The e-mail or the cart service is down or too slow. Nothing is lost; all is sent when they work again.
    - alert: DeadLetters
      expr: max by (shop_notification_kind) (shop_outbox_dead_letters{ {{- $in -}} }) > 0
      annotations:
        summary: Notifications of orders failed for good
        description: "{{ "{{ $value }}" }} of kind {{ "{{ $labels.shop_notification_kind }}" }} are not sent again by themselves."
    - alert: ClockSetBack
      expr: max(shop_orders_future{ {{- $in -}} }) > 0
      for: 2m
      annotations:
        summary: Orders are dated in the future
        description: The clock of checkout's database was ahead, or is behind now. Orders are processed all the same.
    - alert: ClockJumped
      expr: max by (service_name) (shop_retention_paused{ {{- $in -}} }) > 0
      annotations:
        summary: The clock of a database jumped by more than a day, or the service did not run for as long
        description: "{{ $service }} deletes nothing until the clock has been steady for a day."
- name: letters
  rules:
    - alert: LettersNotSent
      expr: max by (shop_email_letter_state) (shop_email_letters{ {{- $in -}} ,shop_email_letter_state=~"REFUSED|IN_DOUBT"}) > 0
      annotations:
        summary: The mail relay refused letters, or did not confirm them
        description: "{{ "{{ $value }}" }} letters are {{ "{{ $labels.shop_email_letter_state }}" }}; they are not sent again by themselves."
    - alert: MailRelayFails
      # NOT_SENT is the relay's failure; a message that it defers, as in greylisting, is DEFERRED. If it accepts no
      # message, it may refuse every mailbox because of its configuration.
      expr: >-
        sum(increase(shop_email_attempts_total{ {{- $in -}} ,shop_email_attempt_outcome=~"NOT_SENT|UNDELIVERABLE"}[5m])) >= 2
        unless sum(increase(shop_email_attempts_total{ {{- $in -}} ,shop_email_attempt_outcome="SENT"}[2m])) > 0
      for: 1m
      annotations:
        summary: The mail relay takes no letters
        description: "{{ "{{ $value | humanize }}" }} attempts in five minutes failed, and none succeeded in two. Letters wait; none is lost."
    - alert: LettersWait
      # Without a relay messages wait by design, and there are no attempts.
      expr: >-
        max(shop_email_oldest_letter_age_seconds{ {{- $in -}} }) > 900
        and sum(increase(shop_email_attempts_total{ {{- $in -}} }[10m])) > 0
      for: 5m
      annotations:
        summary: Order confirmations wait for the mail relay for more than a quarter of an hour
        description: The relay is down or defers letters. Nothing is lost; all are sent when it works again.
- name: reconciliation
  rules:
    # A run exports its result once; the next one follows within a quarter of an hour.
    - alert: RecordsDisagree
      expr: max by (shop_reconciliation_mismatch_kind) (max_over_time(shop_reconciliation_mismatches{ {{- $in -}} }[30m])) > 0
      annotations:
        summary: Orders, charges, shipments and e-mails disagree
        description: "{{ "{{ $value }}" }} orders are {{ "{{ $labels.shop_reconciliation_mismatch_kind }}" }}."
    - alert: NotReconciled
      expr: >-
        sum(count_over_time(shop_reconciliation_orders{ {{- $in -}} }[1d])) > 0
        unless sum(count_over_time(shop_reconciliation_orders{ {{- $in -}} }[1h])) > 0
      annotations:
        summary: Records have not been compared for an hour, but were before
        description: The job of the reconciliation fails or does not start.
- name: limits
  rules:
    {{- $served := printf "increase(http_server_request_duration_seconds_count{%s,http_route=\"/orders\"" $in }}
    # A customer who reaches a limit, or whose card is declined, tries again a few times; a program goes on. The share of
    # declined cards shows programs that no limit recognizes.
    - alert: OrdersRefused
      expr: >-
        sum by (service_name, shop_http_refusal_reason) (
        increase(shop_http_refusals_total{ {{- $in -}} ,shop_http_refusal_reason!~"host|length"}[10m])) > 20
        or on (service_name) (
        sum by (service_name) ({{ $served }},http_response_status_code="402"}[10m])) > 20
        and sum by (service_name) ({{ $served }},http_response_status_code="402"}[10m]))
        > 0.5 * sum by (service_name) ({{ $served }},http_request_method="POST"}[10m])))
      annotations:
        summary: The storefront refuses many orders because of a limit, or most because of their cards
        description: "{{ "{{ $value | humanize }}" }} in ten minutes ({{ "{{ or $labels.shop_http_refusal_reason `cards declined` }}" }}): somebody tests cards or floods a mailbox, or a limit is too low."
- name: saturation
  rules:
    - alert: EventLoopLags
      expr: >-
        histogram_quantile(0.99, sum by (service_name, service_instance_id, le) (
        rate(shop_event_loop_lag_seconds_bucket{ {{- $in -}} }[5m]))) > 0.1
      for: 3m
      annotations:
        summary: "{{ $service }} gets too little CPU time, or something blocks its event loop"
        description: Timers of {{ $instance }} run {{ "{{ $value | humanizeDuration }}" }} late (99th percentile).
    - alert: MemoryGrows
      # 16 MiB in ten minutes, from ten minutes after the start. A job's runs are no leak.
      expr: >-
        max by (service_name, service_instance_id) (
        deriv(process_memory_usage_bytes{ {{- $in -}} ,k8s_cronjob_name=""}[10m]) * 600 > 16 * 2^20
        and process_memory_usage_bytes{ {{- $in -}} } offset 10m)
      for: 2m
      annotations:
        summary: "{{ $service }} takes more and more memory"
        description: "{{ $instance }} grew by {{ "{{ $value | humanize1024 }}" }}B in ten minutes. At its limit it is killed, and its calls fail."
    - alert: PoolExhausted
      expr: >-
        max by (service_name, service_instance_id, db_client_connection_pool_name) (
        min_over_time(db_client_connection_pending_requests{ {{- $in -}} }[2m])) > 0
      for: 1m
      annotations:
        summary: Operations of {{ $service }} wait for a database connection
        description: "The pool {{ "{{ $labels.db_client_connection_pool_name }}" }} of {{ $instance }} has had no idle connection for two minutes."
    - alert: VolumeFillsUp
      # Full within four days at the rate of the last six hours. Volumes below 20 % are left out: a burst of orders on
      # them would be mistaken for a trend.
      expr: >-
        max by (service_name) (shop_store_volume_usage_bytes{ {{- $in -}} } / shop_store_volume_limit_bytes{ {{- $in -}} }) > 0.8
        or predict_linear(max by (service_name) (shop_store_volume_usage_bytes{ {{- $in -}} })[6h:5m], 4 * 86400)
        > max by (service_name) (shop_store_volume_limit_bytes{ {{- $in -}} })
        and max by (service_name) (shop_store_volume_usage_bytes{ {{- $in -}} } / shop_store_volume_limit_bytes{ {{- $in -}} }) > 0.2
      for: 30m
      annotations:
        summary: The volume of {{ $service }} is more than 80 % full, or will be full within four days
        description: When it is full, every write fails. Nothing that was stored is lost.
- name: stores
  rules:
    - alert: DatabaseSlow
      expr: >-
        histogram_quantile(0.95, sum by (service_name, db_system_name, le) (
        rate(db_client_operation_duration_seconds_bucket{ {{- $in -}} }[5m]))) > 0.25
      for: 3m
      annotations:
        summary: {{ printf "Operations of %s on %s are slow" $service "{{ $labels.db_system_name }}" }}
        description: "5 % of them take more than {{ "{{ $value | humanizeDuration }}" }}."
    - alert: DatabaseFails
      expr: >-
        sum by (service_name, db_system_name) (rate(db_client_operation_duration_seconds_count{ {{- $in -}} ,error_type!=""}[5m]))
        / sum by (service_name, db_system_name) (rate(db_client_operation_duration_seconds_count{ {{- $in -}} }[5m])) > 0.05
        and sum by (service_name, db_system_name) (
        increase(db_client_operation_duration_seconds_count{ {{- $in -}} ,error_type!=""}[5m])) >= 5
      annotations:
        summary: {{ printf "Operations of %s on %s fail" $service "{{ $labels.db_system_name }}" }}
        description: "{{ "{{ $value | humanizePercentage }}" }} of the operations of the last five minutes failed."
- name: replicas
  rules:
    {{- $rpc := "rpc_server_call_duration_seconds_count" }}
    {{- $http := "http_server_request_duration_seconds_count" }}
    {{- $by := "sum by (service_name, service_instance_id, k8s_namespace_name)" }}
    - record: instance:requests:rate5m
      expr: {{ $by }} (rate({{ $rpc }}{ {{- $in -}} }[5m]) or rate({{ $http }}{ {{- $in -}} }[5m]))
    # A call that hangs is cancelled, by its deadline or its caller.
    - record: instance:errors:rate5m
      expr: >-
        {{ $by }} (rate({{ $rpc }}{ {{- $in -}} ,rpc_response_status_code=~"{{ include "shop.serverFaults" . }}|CANCELLED"}[5m])
        or rate({{ $http }}{ {{- $in -}} ,http_response_status_code=~"5.."}[5m]))
        or 0 * instance:requests:rate5m{ {{- $in -}} }
    - alert: ReplicaFails
      {{- $errors := printf "instance:errors:rate5m{%s}" $in }}
      {{- $requests := printf "instance:requests:rate5m{%s}" $in }}
      # More than 5 % of its calls, five times its siblings' share, and five calls in five minutes. Replicas that have
      # ended do not count as siblings.
      expr: >-
        {{ $errors }} / {{ $requests }} > 0.05
        and {{ $errors }} / {{ $requests }}
        > 5 * (sum by (service_name) ({{ $errors }}) - on (service_name) group_right () {{ $errors }})
        / (sum by (service_name) ({{ $requests }}) - on (service_name) group_right () {{ $requests }})
        and {{ $errors }} * 300 >= 5
        and on (service_name) count by (service_name) (count_over_time(process_memory_usage_bytes{ {{- $in -}} }[1m])) > 1
      for: 2m
      annotations:
        summary: One replica of {{ $service }} fails much more often than its siblings
        description: "{{ $instance }} failed {{ "{{ $value | humanizePercentage }}" }} of its calls."
    # As callers see it, so that what keeps calls from arriving counts as well.
    {{- $byMethod := "sum by (service_name, server_address, rpc_method, k8s_namespace_name)" }}
    {{- $calls := printf "rate(rpc_client_call_duration_seconds_count{%s" $in }}
    {{- $faults := printf "%s,rpc_response_status_code=~\"%s|PEER_BROKEN\"}[2m])" $calls (include "shop.serverFaults" .) }}
    # Deadlines that a caller misses because its own timers are late say nothing about its peers.
    {{- $late := printf "sum by (service_name, le) (rate(shop_event_loop_lag_seconds_bucket{%s}[2m]))" $in }}
    {{- $late = printf "histogram_quantile(0.95, %s) > 0.1, \"rpc_response_status_code\", \"DEADLINE_EXCEEDED\", \"service_name\", \".*\"" $late }}
    {{- $faults = printf "%s unless on (service_name, rpc_response_status_code) label_replace(%s)" $faults $late }}
    {{- $peer := printf "\"peer\", \"$1\", \"server_address\", \"%s(-clusterip)?([.].*)?\"" (include "shop.name" (list . "(.+?)")) }}
    - record: peer:errors:rate2m
      expr: label_replace({{ $byMethod }} ({{ $faults }}), {{ $peer }})
    - record: peer:errors:ratio_rate2m
      expr: label_replace({{ $byMethod }} ({{ $faults }}) / {{ $byMethod }} ({{ $calls }}}[2m])), {{ $peer }})
    {{- $paging := list }}
    {{- range .Computed.slos }}
    {{- if eq .severity "page" }}{{ $paging = append $paging .service }}{{ end }}
    {{- end }}
    {{- $five := printf "and peer:errors:rate2m{%s} * 120 >= 5" $in }}
    {{- $failing := printf "peer:errors:ratio_rate2m{%s} > 0.25 %s" $in $five }}
    # What customers notice: a service of an SLO that pages, or whose callers fail in turn.
    {{- $noticed := printf "%s and on (service_name) sum by (service_name) (%s) / sum by (service_name) (%s) > 0.05" $failing $errors $requests }}
    {{- $noticed = printf "peer:errors:ratio_rate2m{%s,peer=~\"%s\"} > 0.25 %s or %s" $in (join "|" (sortAlpha (uniq $paging))) $five $noticed }}
    {{- range $severity, $calls := dict "page" $noticed "ticket" $failing }}
    - alert: CallsFail
      # The last service of a chain is at fault: one whose own calls succeed. Few of them may fail many orders.
      expr: >-
        max by (service_name) (label_replace({{ $calls }}, "service_name", "$1", "peer", "(.+)"))
        unless on (service_name) (peer:errors:ratio_rate2m{ {{- $in -}} } > 0.05 and peer:errors:rate2m{ {{- $in -}} } * 120 >= 2)
      labels: {severity: {{ $severity }}}
      annotations:
        summary: Calls of {{ $service }} fail
        description: "{{ "{{ $value | humanizePercentage }}" }} of the calls of a method fail or have unusable answers, by what callers see."
    {{- end }}
    {{- range $name, $installed := .Computed.services }}
    {{- if or $installed.replicas $installed.autoscaling.enabled }}
    - alert: MetricsMissing
      expr: absent_over_time(process_memory_usage_bytes{ {{- $in -}} ,service_name="{{ $name }}"}[5m])
      for: 1m
      labels: {severity: {{ ternary "page" "ticket" (has $name $paging) }}, service_name: "{{ $name }}"}
      annotations:
        summary: "{{ $name }} has reported no metrics for five minutes"
        description: No replica runs, or none reaches the collector. SLOs of {{ $name }} have no data meanwhile.
    {{- end }}
    {{- end }}
- name: identity
  rules:
    - alert: CallsDenied
      expr: sum by (service_name, rpc_method) (increase(shop_server_denied_requests_total{ {{- $in -}} }[10m])) > 0
      annotations:
        summary: "{{ $service }} refuses calls of a caller that may not make them"
        description: "{{ "{{ $value | humanize }}" }} calls of {{ "{{ $labels.rpc_method }}" }} in ten minutes. Its log names the caller."
    - alert: CertificateNotRenewed
      # Certificates are renewed when a third of their lifetime is left.
      expr: >-
        max by (service_name, service_instance_id) (shop_tls_certificate_expiry_seconds{ {{- $in -}} } - time()
        < 0.25 * shop_tls_certificate_lifetime_seconds{ {{- $in -}} })
        or max by (service_name, service_instance_id) (increase(shop_tls_failed_reloads_total{ {{- $in -}} }[5m])) > 0
      for: 5m
      annotations:
        summary: "{{ $service }} has no new certificate"
        description: "The certificate of {{ $instance }} is in its last quarter, or what replaced its files is unusable. When it ends, calls fail."
- name: telemetry
  rules:
    - alert: TelemetryDropped
      expr: sum by (service_name, shop_telemetry_signal) (increase(shop_telemetry_dropped_total{ {{- $in -}} }[5m])) > 0
      # Longer than the window, so that a single batch, lost while a collector starts, does not fire.
      for: 6m
      annotations:
        summary: "{{ $service }} loses telemetry"
        description: "The collector did not take {{ "{{ $value | humanize }}" }} {{ "{{ $labels.shop_telemetry_signal }}" }} in five minutes. Orders are not affected."
    {{- if include "shop.collects" . }}
    {{- $job := printf "job=~\"otel-collector|%s\"" (include "shop.name" (list . "otel-collector")) }}
    - alert: CollectorDown
      expr: absent(up{ {{- $job -}} } == 1)
      for: 2m
      annotations:
        summary: The collector cannot be scraped
        description: While it is down, services lose telemetry. Orders are not affected.
    - alert: CollectorRefuses
      # The suffix of these names depends on the collector's settings: none, a unit or `total`.
      expr: >-
        {{- range $i, $counter := list "receiver_refused_spans" "receiver_refused_metric_points" "receiver_refused_log_records" "exporter_send_failed_spans" "exporter_send_failed_metric_points" "exporter_send_failed_log_records" }}
        {{ if $i }}or {{ end }}sum by (job) (rate({__name__=~"otelcol_{{ $counter }}(_.*)?",{{ $job }}}[5m])) > 0
        {{- end }}
      for: 5m
      annotations:
        summary: The collector loses telemetry
        description: It has too little memory, or a store behind it does not take what it sends. Orders are not affected.
    {{- end }}
{{- end -}}
