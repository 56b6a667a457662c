"""Values that contradict each other or the schema fail the render with an error that names the field."""

import re
from typing import Any

import pytest
import yaml

REFUSED = {
    "services: {ad: {calls: {basket: [Get]}}}": 'services.ad.calls: there is no gRPC service "basket"',
    "services: {ad: {enabled: false}}": (
        'services.storefront.calls: there is no gRPC service "ad"; install it, or set it there to []'
    ),
    "tls: {callers: {'spiffe://a/b': {basket: [Get]}}}": 'tls.callers: there is no gRPC service "basket"',
    "{tls: {enabled: true}, mesh: sidecar}": "mesh: its proxies encrypt, and see no methods of calls",
    "{mesh: ambient, meshPolicies: linkerd}": "mesh: linkerd has no ambient mode; set mesh to sidecar",
    "{mesh: sidecar, networkPolicy: {ingressFrom: [{podSelector: {}}]}}": "ingressFrom: a mesh knows callers by their",
    "enabled: false": "enabled: only the `condition` of an umbrella chart's dependency",
    "nameOverride: a-name-of-more-than-24-chars": "fullnameOverride: names can't begin with",
    "services: {ad: {internalCalls: {currency: [Rates/Get]}}}": 'there is no service with internal methods "currency"',
    "services: {email: null, storefront: null}": 'services.checkout.calls: there is no gRPC service "email"',
    "services: {email: {env: {SMTP_URL: x}, secretRefs: {SMTP_URL: {name: s, key: k}}}}": "email.env: SMTP_URL",
    # Names that a pod would have twice.
    "services: {checkout: {volumes: [{name: tmp}]}}": 'services.checkout.volumes: "tmp" is already used',
    "services: {checkout: {volumeMounts: [{name: x, mountPath: /data}]}}": 'volumeMounts: "/data" is already used',
    "services: {checkout: {sidecars: [{name: checkout}]}}": 'checkout.sidecars: "checkout" is already used',
    "services: {checkout: {initContainers: [{name: migrate}]}}": 'checkout.sidecars: "migrate" is already used',
    "services: {checkout: {sidecars: [{name: x}, {name: x}]}}": 'checkout.sidecars: "x" is already used',
    # Versions.
    "services: {cart: {versions: {v1: {weight: 100}}}}": 'services.cart.versions: there is no version "v1"',
    **{
        f"services: {{recommendation: {{versions: {versions}}}}}": f"services.recommendation.versions: {message}"
        for versions, message in {
            "{v1: {weight: 90}, v4: {weight: 10}}": 'there is no version "v4"; the service has v1, v2, v3',
            "{v1: {weight: 90}, v2: {weight: 11}}": "the weights add up to 101, not 100",
            "{v1: {weight: 90}, v2: {}}": "the weights add up to 90, not 100",
            "{v1: {weight: 0}}": "the weights add up to 0, not 100",
        }.items()
    },
    # Stores that replicas cannot share, and stores that nobody could sign in to.
    "{valkey: {enabled: false}, services: {cart: {replicas: 2}}}": "cart.replicas: a store in memory supports one",
    "{highAvailability: true, valkey: {enabled: false}}": "cart.replicas: a store in memory supports one",
    "services: {ad: {autoscaling: {enabled: true, keda: {requestsInFlight: 9}}}}": (
        "services.ad.autoscaling.keda.prometheusUrl: without observability.enabled there is no Prometheus"
    ),
    "services: {ad: {autoscaling: {enabled: true, minReplicas: 7}}}": (
        "services.ad.autoscaling.maxReplicas: 6 are fewer than the minReplicas, 7"
    ),
    "{postgresql: {enabled: false}, externalDatabase: {host: db}}": "services.checkout.existingSecret: an external",
    "{valkey: {enabled: false}, externalValkey: {host: valkey}}": "externalValkey.existingSecret: an external Valkey",
    "services: {cart: {store: postgresql, env: {REDIS_URL: x}}}": "cart.store: it is postgresql; remove REDIS_URL",
    "services: {payment: {durability: preferred}}": "services.payment.durability: its ledger must not lose a commit",
    "services: {shipping: {durability: asynchronous}}": "shipping.durability: its ledger must not lose a commit",
    "postgresql: {enabled: false, cloudnativepg: {enabled: true}}": "enabled: it needs postgresql.enabled",
    "postgresql: {cloudnativepg: {enabled: true, spec: {postgresql: {synchronous: {dataDurability: preferred}}}}}": (
        "postgresql.cloudnativepg.spec.postgresql.synchronous: the durability of these services is required"
    ),
    # A manifest that is retained for less time than orders.
    "services: {shipping: {env: {RETENTION_DAYS: 89}}, checkout: {env: {RETENTION_DAYS: 90}}}": (
        "services.shipping.env.RETENTION_DAYS: 89 days are fewer than the 90 days"
    ),
    "services: {shipping: {env: {RETENTION_DAYS: '30'}}, checkout: {env: {RETENTION_DAYS: '31'}}}": (
        "services.shipping.env.RETENTION_DAYS: 30 days are fewer than the 31 days"
    ),
    # Databases.
    **{
        f"{{postgresql: {{enabled: false}}, services: {{{name}: {{{several}}}}}}}": (
            f"services.{name}.replicas: a SQLite file supports one replica"
        )
        for name, several in (("payment", "replicas: 2"), ("checkout", "autoscaling: {enabled: true}"))
    },
    "{postgresql: {enabled: false}, externalDatabase: {sslmode: verify-ca}}": (
        "externalDatabase.caSecret.name: sslmode verify-ca needs a Secret"
    ),
    # TLS and identities.
    "tls: {enabled: true, issuer: cert-manager}": "tls.issuerRef.name: cert-manager needs the name of an issuer",
    "tls: {issuer: cert-manager, issuerRef: {kind: ClusterIssuer}}": "tls.issuerRef.name: cert-manager needs the name",
    (
        "{tls: {enabled: true}, services: {storefront: {url: 'http://a.c'}},"
        " gateway: {enabled: true, parentRefs: [{name: g}], grpcHostnames: [a.b]}}"
    ): "gateway.grpcHostnames: with tls.enabled the Gateway needs a client",
    "{mesh: sidecar, meshPolicies: linkerd, tls: {callers: {'spiffe://a/b': {cart: [GetCart]}}}}": (
        "accounts only, which spiffe://a/b is not"
    ),
    # A laboratory in a shop that others use.
    **{
        f"{{lab: {{enabled: true}}, {values}}}": "lab.enabled: it breaks services on purpose, so not with"
        for values in (
            "postgresql: {enabled: false}, externalDatabase: {host: db}",
            "valkey: {enabled: false}, externalValkey: {host: v}",
            "gateway: {enabled: true, parentRefs: [{name: g}]}",
            "ingress: {enabled: true}",
        )
    },
    # Routes and customers.
    "gateway: {enabled: true}": "gateway.parentRefs",
    "gateway: {enabled: true, parentRefs: [{name: public}]}": "services.storefront.url: routes need the public URL",
    "ingress: {enabled: true}": "services.storefront.url: routes need the public URL",
    **{
        f"services: {{employee-api: {{url: 'https://employees.example.com', env: {env}}}}}": (
            f"services.employee-api.env.{message}"
        )
        for env, message in {
            "{}": "AUTH_MODE: the API has a public url",
            "{AUTH_MODE: ''}": "AUTH_MODE",
            "{AUTH_MODE: enforce}": "TRUSTED_PROXIES",
            "{AUTH_MODE: observe}": "TRUSTED_PROXIES",
            "{AUTH_MODE: 'off', ALLOWED_HOSTS: ''}": "ALLOWED_HOSTS: it is empty",
        }.items()
    },
    "{load: {enabled: true}, services: {storefront: null}}": 'load.enabled: there is no service "storefront"',
    # Objectives.
    "slos: {charge: {latencySeconds: 0.3}}": "slos.charge.latencySeconds: 0.3 is none of the bounds",
    "slos: {storefront: {method: shop.A/B}}": "slos.storefront.method: storefront serves HTTP",
    "slos: {charge: {route: /}}": "slos.charge.route: payment serves gRPC",
    # Telemetry.
    "telemetry: {endpoint: 'http://c:4317', tls: {caSecret: {name: ca}}}": "telemetry.tls",
    "telemetry: {tls: {clientSecret: client}}": "telemetry.tls",
    "telemetry: {headersSecret: {name: token}}": "telemetry.headersSecret.name",
    "telemetry: {protocol: http/protobuf}": "telemetry.protocol",
    "observability: {prometheusRule: {enabled: true}}": "prometheusRule.enabled: there are no metrics",
    "observability: {alertmanager: {pageReceiver: me}}": 'pageReceiver: there is no receiver "me"',
    "observability: {collector: {enabled: true}}": "observability.collector.exportTo",
    "observability: {collector: {exportTo: {logs: 'http://loki'}}}": "observability.collector.enabled",
    "observability: {serviceMonitor: {enabled: true}}": "observability.serviceMonitor.enabled",
    "observability: {collector: {enabled: true}, serviceMonitor: {enabled: true}}": "observability.serviceMonitor.from",
}
OUTSIDE_THE_SCHEMA = [
    "replicas: 2",
    "services: {cart: {replica: 2}}",
    "services: {email: {durability: none}}",
    "postgresql: {cloudnativepg: {instances: 3}}",
    "services: {cart: {replicas: -1}}",
    "services: {cart: {protocol: thrift}}",
    "services: {storefront: {port: 80}}",
    "services: {storefront: {url: shop.example.com}}",
    "services: {storefront: {url: 'https://shop.example.com/'}}",
    "services: {ad: {autoscaling: {keda: {requestsInFlight: 0}}}}",
    "services: {ad: {autoscaling: {keda: {prometheusUrl: 'http://mine:9090'}}}}",
    "networkPolicy: {kedaFrom: []}",
    "load: {rate: 0}",
    "load: {shape: square}",
    "services: {cart: {exposed: true}}",
    "services: {cart: {calls: {ad: GetAds}}}",
    "services: {cart: {calls: {ad: [shop.AdService/GetAds]}}}",
    "services: {cart: {internalCalls: {payment: [Void]}}}",
    "reconciliation: {internalCalls: [payment]}",
    "tests: {calls: [cart]}",
    "tls: {callers: {gateway: {cart: [AddItem]}}}",
    "tls: {trustDomain: 'spiffe://shop'}",
    "mesh: istio",
    "meshPolicies: none",
    "networkPolicy: {peers: {mesh: any}}",
    "services: {cart: {exposed: [shop.CartService/AddItem]}}",
    "services: {cart: {image: {digest: 'sha256:short'}}}",
    "services: {Cart: {}}",
    "services: {recommendation: {versions: [v1]}}",
    "services: {recommendation: {versions: {v1: {weight: 101}}}}",
    "services: {recommendation: {versions: {v1: {weight: 0.5}}}}",
    "services: {recommendation: {versions: {v1: {calls: {}}}}}",
    "services: {cart: {env: {lower: x}}}",
    "services: {cart: {shutdown: {preStopSeconds: 6}}}",
    "services: {cart: {podLabels: {app.kubernetes.io/name: x}}}",
    "services: {cart: {sidecars: [{image: x}]}}",
    "services: {cart: {volumeMounts: [{name: x, mountPath: relative}]}}",
    "scheduling: {topologySpreadConstraints: []}",
    "externalValkey: {caSecret: name}",
    "telemetry: {sampleRatio: 2}",
    "telemetry: {endpoint: 'collector:4317'}",
    "telemetry: {resourceAttributes: {'a,b': c}}",
    "networkPolicy: {dns: []}",
    "networkPolicy: {peers: {valkey: []}}",
    "networkPolicy: {peers: {valkey: all}}",
    "networkPolicy: {dnsPorts: []}",
    "services: {storefront: {calls: [ad]}}",
    "services: {ad: {replicas: two}}",
    "slos: {mine: {latency: 0.5}}",
    "slos: {charge: {availability: 99.9}}",
    "slos: {charge: {window: month}}",
    "telemetry: {protocol: http/json}",
    "telemetry: {sampling: all}",
    "telemetry: {propagators: xray}",
    "observability: {dashboards: {dataSources: {tracesType: zipkin}}}",
    "observability: {loki: {retention: 23h}}",
    "observability: {loki: {retention: 1m}}",
    "observability: {collector: {exportTo: {logs: 'loki:3100'}}}",
    "networkPolicy: {dnsPorts: [domain]}",
    "fullnameOverride: EU",
    "global: none",
    "enabled: 'true'",
    "logLevel: loud",
    "postgresql: {persistence: {size: much}}",
]


@pytest.mark.parametrize(("values", "message"), REFUSED.items())
def test_the_error_names_the_field(render: Any, values: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        render(yaml.safe_load(values))


OPERATORS = {
    "services: {ad: {autoscaling: {enabled: true, keda: {requestsInFlight: 20, prometheusUrl: 'http://mine:9090'}}}}": (
        "services.ad.autoscaling.keda: the cluster has no KEDA operator"
    ),
    "postgresql: {cloudnativepg: {enabled: true}}": "cloudnativepg.enabled: the cluster has no CloudNativePG operator",
    "mesh: sidecar": "mesh: the cluster has no security.istio.io/v1; install istio first, or render offline with",
    "{mesh: sidecar, meshPolicies: linkerd}": "mesh: the cluster has no policy.linkerd.io/v1beta3,gateway.networking",
    # Weights in a mesh need routes.
    "{mesh: sidecar, services: {recommendation: {versions: {v1: {weight: 100}}}}}": (
        "mesh: the cluster has no security.istio.io/v1,gateway.networking.k8s.io/v1; install"
    ),
}


@pytest.mark.parametrize(("values", "message"), OPERATORS.items())
def test_the_operator_or_mesh_is_named_that_is_missing(helm: Any, values: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        helm("render", values=yaml.safe_load(values), name="shop", namespace="shop", api_versions=[])


@pytest.mark.parametrize("name", ["a" * 31, "1shop", "my.shop"])
def test_a_release_whose_name_can_begin_no_other_is_refused(render: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f'fullnameOverride: names can\'t begin with "{re.escape(name)}"'):
        render(name=name)


@pytest.mark.parametrize("values", OUTSIDE_THE_SCHEMA)
def test_values_outside_the_schema_are_refused(helm: Any, values: str) -> None:
    with pytest.raises(ValueError, match=r"^shop:\n- at '"):
        helm("validate_schema", values=yaml.safe_load(values))


def test_the_schema_accepts_every_file_of_the_matrix(helm: Any, matrix_values: dict[str, Any]) -> None:
    helm("validate_schema", values=matrix_values)
