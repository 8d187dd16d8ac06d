#!/usr/bin/env bash
# Runs tests, a line per package, and prints what the failed ones said.
#
#   hack/test.sh [flags of go test] -- PACKAGES
#   RACE="./pkg/plugins/..." hack/test.sh -- ./...      these packages run under the race detector, and not without it
#
# A test that fails is repeated once, when no other test runs. One that then passes is a flake: the run goes on, a line FLAKE
# names the test, and the test is added to the file `flakes` of the cache. `make release` waits until that file is empty.
# All events of the run are in bin/tests/*.json.
set -euo pipefail
cd "$(dirname "$0")/.."

flags=()
while [[ $# -gt 0 && $1 != -- ]]; do flags+=("$1"); shift; done
shift || { echo "test: usage: hack/test.sh [flags of go test] -- PACKAGES" >&2; exit 2; }

cache=${TANDEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem}
PATH="$(go run ./internal/sandbox/tools gotestsum):$PATH"
mkdir -p bin/tests
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)

# Those that take minutes begin first: at the end nothing would run beside them.
longest=(./test/integration ./test/deploy ./test/faults ./internal/agent/mps ./internal/agent/deviceplugin ./internal/release/chart ./test/gangs
	./test/differential ./pkg/shadow ./test/gpu)
packages=$(go list -- "$@")
if [[ $* == ./... ]]; then
	packages=$(printf '%s\n' $(go list -- "${longest[@]}") $packages | awk '!seen[$0]++')
fi

status=0
# go_test NAME PACKAGES [FLAGS]
go_test() {
	local name=$1 list=$2 events=bin/tests/$1.json
	shift 2
	[[ -n $list ]] || return 0
	# Three times as many packages at once as there are cores: tests of processes mostly wait, for their turn to start an API server too.
	gotestsum --format=pkgname --format-hide-empty-pkg --format-icons=text --hide-summary=skipped --jsonfile="$events" \
		--rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
		--packages="$(tr '\n' ' ' <<<"$list")" -- -p $((3 * $(nproc))) "$@" ${flags[@]+"${flags[@]}"} || status=1
	go run ./test/flakes add "$events" bin/tests/flakes "$cache/flakes" "$commit"
	gotestsum tool slowest --threshold 20s --jsonfile "$events" | sed 's/^/slow: /'
}

raced=
if [[ -n ${RACE:-} ]]; then
	raced=$(go list -- $RACE | grep -Fxf <(echo "$packages") || true)
	packages=$(grep -Fxvf <(echo "$raced") <<<"$packages" || true)
fi
go_test plain "$packages"
go_test race "$raced" -race
exit $status
