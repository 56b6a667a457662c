# `make` lists the targets.
PYTHON ?= python3
VENV := .venv
UV := $(VENV)/bin/uv
PACKAGES := protos $(patsubst %/pyproject.toml,%,$(wildcard services/*/pyproject.toml)) employee-api
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help sync lock protos

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed: make PYTHON=python3.x")'
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet uv==0.13.9

$(VENV)/.installed: requirements.lock pyproject.toml $(wildcard services/*/pyproject.toml) employee-api/pyproject.toml protos/pyproject.toml | $(UV)
	@$(UV) pip install --quiet --python $(VENV) --requirement requirements.lock
	@$(UV) pip install --quiet --python $(VENV) --no-deps $(addprefix --editable ./,$(PACKAGES))
	@touch $@

setup: $(VENV)/.installed

sync: lock setup  ## Lock the dependencies of all packages and install them

lock: | $(UV)
	@$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-annotate --emit-build-options \
		--no-emit-package shop-protos --no-emit-package shop-chassis \
		--group pyproject.toml:test --group pyproject.toml:lint --group pyproject.toml:chart \
		$(addsuffix /pyproject.toml,$(PACKAGES)) --output-file requirements.lock

protos:  ## Generate the contract's Python code
	@protos/generate.sh
