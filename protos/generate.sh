#!/bin/sh
# Generates protos/gen from protos/shop and protos/shop_internal. grpcio-tools 1.76 emits code that loads on every
# grpcio >= 1.76 and protobuf >= 6.33; newer ones emit code that refuses older runtimes.
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
  printf '"""Generated from protos/%s: `make protos` writes it anew."""\n' "$package" >"$out/$package/__init__.py"
  : >"$out/$package/py.typed"
done
