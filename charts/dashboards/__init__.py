"""The Grafana dashboards of the chart: `make dashboards` writes them to `charts/shop/dashboards`."""
