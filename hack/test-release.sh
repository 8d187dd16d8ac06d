#!/usr/bin/env bash
# Builds a release in this tree and once more in a clone in another folder, and compares the two file by file.
#   VERSION    of the release (default v0.0.1)
#   PLATFORMS  to build for, such as linux/amd64 (default all)
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-v0.0.1}
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT

make --no-print-directory release VERSION="$version" PLATFORMS="${PLATFORMS:-}" DIST="$elsewhere/first"
git clone -q . "$elsewhere/clone"
make --no-print-directory -C "$elsewhere/clone" release VERSION="$version" PLATFORMS="${PLATFORMS:-}" DIST="$elsewhere/second"
go run -C tools/release . compare "$elsewhere/first" "$elsewhere/second"
ls -l "$elsewhere/first"
