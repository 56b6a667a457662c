#!/usr/bin/env bash
# Prints the section of a version in CHANGELOG.md: release_notes.sh 1.2.3. Fails if there is none, or an empty one.
set -euo pipefail
cd "$(dirname "$0")/../.."

notes=$(awk -v heading="## [$1]" 'index($0, "## ") == 1 { found = index($0, heading) == 1; next } found' CHANGELOG.md)
[[ $notes =~ [^[:space:]] ]] || { echo "CHANGELOG.md has no notes under the heading '## [$1]'" >&2; exit 1; }
printf '%s\n' "$notes"
