#!/bin/sh
# Generates protos/gen from protos/shop and protos/shop_internal. The version of grpcio-tools is the lower bound of the
# runtime: code of 1.76 loads with grpcio >= 1.76 and protobuf >= 6.33, code of a newer version with newer runtimes only.
set -eu
cd "$(dirname "$0")"
out=${1:-gen}
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
# `uv run --with-requirements` would not check the hashes.
uv venv --quiet --python 3.11 "$new/.venv"
uv pip install --quiet --python "$new/.venv" --require-hashes --requirement generator.lock
PATH=$new/.venv/bin:$PATH python -m grpc_tools.protoc --proto_path=. \
  --python_out="$new" --grpc_python_out="$new" --mypy_out="quiet:$new" --mypy_grpc_out="quiet,only_async:$new" \
  shop/*.proto shop_internal/*.proto
for package in shop shop_internal; do
  # shellcheck disable=SC2016 # the backquotes are text
  printf '"""Generated from protos/%s by `make protos`; do not edit."""\n' "$package" >"$new/$package/__init__.py"
  : >"$new/$package/py.typed"
  mkdir -p "$out/$package"
  rm -r "${out:?}/$package"
  mv "$new/$package" "$out/"
done
