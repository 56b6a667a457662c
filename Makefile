# `make` lists the targets.
PYTHON ?= python3
VENV := .venv
UV := $(VENV)/bin/uv
PACKAGES := protos $(patsubst %/pyproject.toml,%,$(wildcard services/*/pyproject.toml)) employee-api
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# A certificate authority of your own counts for uv as it does for pip.
export UV_SYSTEM_CERTS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo up sync lock protos check test bench

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed: make PYTHON=python3.x")'
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet uv==0.13.9

$(VENV)/.installed: requirements.lock pyproject.toml $(wildcard services/*/pyproject.toml) employee-api/pyproject.toml protos/pyproject.toml | $(UV)
	@echo 'Installing into $(VENV): a minute, the first time'
	@$(UV) pip install --quiet --python $(VENV) --requirement requirements.lock
	@$(UV) pip install --quiet --python $(VENV) --no-deps $(addprefix --editable ./,$(PACKAGES))
	@touch $@

setup: $(VENV)/.installed  ## Make .venv with everything the other targets need

sync: lock setup  ## Lock the dependencies of all packages and install them

lock: | $(UV)
	@$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --emit-build-options \
		$(addprefix --no-emit-package ,shop-protos shop-chassis shop-cli employee-api checkout-service) \
		--group pyproject.toml:test --group pyproject.toml:lint --group pyproject.toml:chart \
		$(addsuffix /pyproject.toml,$(PACKAGES)) --output-file requirements.lock

protos:  ## Generate the contract's Python code
	@protos/generate.sh

demo: setup  ## Start everything on free ports, place an order, show it and its trace, stop everything
	@shop demo

up: setup  ## Start everything and keep it up until Ctrl-C
	@shop up

SOURCES := $(wildcard services/*/src) employee-api/src
# Test folders are no packages, so mypy reads each by itself: several have a conftest.py.
TESTS := $(wildcard services/*/tests) employee-api/tests $(patsubst %/,%,$(sort $(dir $(wildcard tests/*/*.py)))) tests/*.py
# Packages that are imported by another name than their own.
RENAMED := shop-chassis=chassis,shop-protos=shop|shop_internal,shop-cli=shop_cli,employee-api=employee_api
RENAMED := $(RENAMED),grpcio-health-checking=grpc_health,grpcio-reflection=grpc_reflection,grpcio-status=grpc_status
RENAMED := $(RENAMED),googleapis-common-protos=google
BUF := npx --yes @bufbuild/buf@1.75.0

check: setup  ## Lint and type-check everything, as CI does
	ruff check .
	ruff format --check .
	mypy $(SOURCES)
	@set -e; for folder in $(TESTS); do mypy --scripts-are-modules $$folder || { echo "in $$folder"; exit 1; }; done
	python tests/import_contracts.py
	@set -e; for package in $(filter-out protos,$(PACKAGES)); do (cd $$package && deptry src --package-module-name-map '$(RENAMED)'); done
	cd protos && $(BUF) lint && $(BUF) format --diff --exit-code && $(BUF) breaking --against baseline.binpb
	protos/generate.sh .fresh && diff -r -x __pycache__ protos/gen protos/.fresh && rm -r protos/.fresh

test: setup  ## Run every test
	@# After a crash xdist may wait for ever for what the new worker was never told to run.
	pytest -n auto --dist loadfile --max-worker-restart 0

bench: setup  ## Measure speed and memory: a table and bench.json (needs h2load)
	python tests/bench

# --- images and clusters ---
IMAGES := $(patsubst services/%/pyproject.toml,%,$(wildcard services/[a-z]*/pyproject.toml)) employee-api
BUILDER ?= $(firstword $(foreach tool,docker podman buildah,$(if $(shell command -v $(tool)),$(tool))))
BASE ?= docker.io/library/python:3.13-slim-bookworm
REGISTRY ?= docker.io/shop
TAG ?= 0.1.0
IMAGE_ARGS = --build-arg BASE=$(BASE) --build-arg VERSION=$(TAG) --build-arg REVISION=$$(git rev-parse HEAD)

.PHONY: images kind-up deploy
images: $(addprefix image-,$(IMAGES))  ## Build all ten images (BUILDER, BASE, REGISTRY, TAG)

image-%:
	$(or $(BUILDER),$(error docker, podman or buildah is needed)) build $(IMAGE_ARGS) -t $(REGISTRY)/$*:$(TAG) \
		$(if $(wildcard services/$*),-f services/Dockerfile --build-arg SERVICE=$*,-f $*/Dockerfile) .

kind-up:  ## Start a kind cluster of three nodes
	kind create cluster --config kind-config.yaml

deploy: images  ## Load the images into the kind cluster and install the chart
	kind load docker-image --name shop $(foreach image,$(IMAGES),$(REGISTRY)/$(image):$(TAG))
	helm upgrade --install shop charts/shop --namespace shop --create-namespace --wait --timeout 10m \
		--set image.registry=$(patsubst %/,%,$(dir $(REGISTRY))) --set image.repository=$(notdir $(REGISTRY)) --set image.tag=$(TAG)

# --- faults ---
ORDERS ?= 2000
SEED ?= 1
DATABASE ?= sqlite

.PHONY: faults
faults: setup  ## Prove orders under kills, pauses and restarts (ORDERS, SEED, DATABASE=sqlite|postgres)
	shop prove --orders $(ORDERS) --seed $(SEED) --database $(DATABASE) --json faults.json
