#!/bin/sh
# Generates protos/gen from protos/shop and protos/shop_internal. The version of grpcio-tools is the lower bound of the
# runtime: code of 1.76 loads with grpcio >= 1.76 and protobuf >= 6.33, code of a newer version with newer runtimes only.
set -eu
cd "$(dirname "$0")"
out=${1:-gen}
rm -rf "$out/shop" "$out/shop_internal"
mkdir -p "$out"
uv run --quiet --no-project --isolated --python 3.11 \
  --with 'grpcio-tools==1.76.0' --with 'mypy-protobuf==5.1.0' --with 'setuptools<81' \
  python -m grpc_tools.protoc --proto_path=. \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet,only_async:$out" \
  shop/*.proto shop_internal/*.proto
for package in shop shop_internal; do
  # shellcheck disable=SC2016 # the backquotes are text
  printf '"""Generated from protos/%s by `make protos`; do not edit."""\n' "$package" >"$out/$package/__init__.py"
  : >"$out/$package/py.typed"
done
