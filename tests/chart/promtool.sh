#!/usr/bin/env bash
# Builds promtool, which checks and tests the alerts, into .cache; needs Go. Prints its path. Takes minutes, the first
# time. It is no dependency that `go install` accepts, because its module replaces others: its own folder is built.
set -euo pipefail
version=v0.313.4 # of the module; the program says 3.13.4, as does the image in the chart
cd "$(dirname "$0")/../.."
promtool=$PWD/.cache/promtool-$version
if [ ! -x "$promtool" ]; then
  command -v go > /dev/null || { echo "promtool cannot be built: install Go, https://go.dev/dl" >&2; exit 1; }
  mkdir -p .cache
  source=$(GOWORK=off go mod download -json "github.com/prometheus/prometheus@$version" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  # The tag leaves out the service discovery of clouds, which promtool would check configurations with.
  GOWORK=off go build -C "$source" -buildvcs=false -tags remove_all_sd -ldflags '-s -w' -o "$promtool.part" ./cmd/promtool
  mv "$promtool.part" "$promtool"
fi
echo "$promtool"
