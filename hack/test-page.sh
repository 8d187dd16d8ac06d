#!/usr/bin/env bash
# The checks of the GPU map in Debian's Chromium, at made-up clusters of 8, 100 and 1,000 GPUs; make test-page runs it.
#
# IMAGES names the directory for the screenshots, bin/page unless given; IMAGES=docs/images renews those of the guide.
# Needs node, npm and chromium, which it installs on Debian as root (500 MB), and playwright-core from npm (10 MB), which it
# keeps in the cache of Tandem's tools.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v "${CHROMIUM:-/usr/bin/chromium}" >/dev/null || missing+=(chromium fonts-dejavu-core)
if ((${#missing[@]})); then
	if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
		echo "test-page: missing: ${missing[*]} (names of Debian's packages); install them and try again, or name a browser by CHROMIUM" >&2
		exit 1
	fi
	echo "test-page: installing ${missing[*]} (up to 500 MB)" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q
	apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

version=1.64.1
export PLAYWRIGHT="${TANDEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem}/playwright-core-$version"
if [[ ! -e $PLAYWRIGHT/node_modules/playwright-core/package.json ]]; then
	echo "test-page: fetching playwright-core $version from npm into $PLAYWRIGHT" >&2
	mkdir -p "$PLAYWRIGHT"
	npm install --prefix "$PLAYWRIGHT" --no-audit --no-fund --no-save "playwright-core@$version"
fi

images="${IMAGES:-bin/page}"
mkdir -p "$images"
echo "test-page: compiling the pages, then about half a minute of checks; screenshots go to $images" >&2
go run ./test/page --check test/page/page.mjs --images "$images"
