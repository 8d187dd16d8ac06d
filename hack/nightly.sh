#!/usr/bin/env bash
# Everything that the project can check without a GPU, in hours: before a release, and before a larger piece of work is called done.
#
#   hack/nightly.sh                 all stages; one that passed on this commit is not run again, so a run that ended is taken up
#   STAGES="e2e race" hack/nightly.sh
#   FRESH=1 hack/nightly.sh         forget what has passed on this commit
#
# The table at the end has each stage, how it ended and how long it took. The gate is passed when every stage is. The whole output of a stage is in a file beside it.
set -uo pipefail
cd "$(dirname "$0")/.."

cache=${TANDEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem}
commit=$(git rev-parse --short HEAD)
if [[ -n $(git status --porcelain) ]]; then
	commit+=-$(git diff HEAD | sha256sum | cut -c1-8)
fi
state=$cache/nightly/$commit
[[ -z ${FRESH:-} ]] || rm -rf "$state"
mkdir -p "$state"

# The seed of the properties is new for each commit, and the same where a run is taken up.
[[ -s $state/seed ]] || date +%s >"$state/seed"
RAPID_SEED=$(cat "$state/seed")
export RAPID_SEED
echo "nightly: commit $commit, seed of the properties $RAPID_SEED (RAPID_SEED), outputs in $state"

# Tests of processes: the packages that use the sandbox. No verdict of theirs may depend on the speed of the machine.
processes() { go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | grep /internal/sandbox | cut -d' ' -f1 | tr '\n' ' '; }

declare -A stages=(
	[lint]="make lint"
	[generated]="make verify"
	[demo]="make demo"
	[tests]="TANDEM_PLAYS=all make test TEST_FLAGS='-count=1 -shuffle=on -timeout=2h'"
	[properties]="make properties CASES=10000 HISTORIES=2000"
	[race]="make race"
	[faults]="make faults"
	[stress]="make stress ROUNDS=1 PACKAGES='$(processes)'"
	[e2e]="make e2e"
	[older]="make e2e SMOKE=1 POD_SOURCE=apiserver"
	[install]="make test-install"
	[operators]="make test-operators"
	[kueue]="make test-kueue"
	[gateway]="make test-gateway"
	[notebooks]="make test-notebooks"
	[autoscaler]="make test-autoscaler"
	[page]="make test-page"
)
order=(lint generated demo tests properties race faults stress e2e older install operators kueue gateway notebooks autoscaler page)

read -ra wanted <<<"${STAGES:-${order[*]}}"
for stage in "${wanted[@]}"; do
	if [[ -z ${stages[$stage]:-} ]]; then
		echo "nightly: STAGES names $stage; the stages are ${order[*]}" >&2
		exit 2
	fi
	if grep -qs '^passed' "$state/$stage.result"; then
		continue
	fi
	printf 'nightly: %s %s: %s\n' "$(date -u +%H:%M:%S)" "$stage" "${stages[$stage]}"
	begin=$SECONDS
	if bash -c "${stages[$stage]}" >"$state/$stage.log" 2>&1 </dev/null; then end=passed; else end="FAILED with $?"; fi
	printf '%s\t%ds\n' "$end" $((SECONDS - begin)) >"$state/$stage.result"
	cat "$state/$stage.result"
done

failed=0
printf '\n%-12s %-16s %8s   %s\n' stage result took output
for stage in "${order[@]}"; do
	end="not run" took=-
	[[ ! -s $state/$stage.result ]] || IFS=$'\t' read -r end took <"$state/$stage.result"
	printf '%-12s %-16s %8s   %s\n' "$stage" "$end" "$took" "$state/$stage.log"
	[[ $end == passed ]] || failed=1
done
grep -h '^FLAKE' "$state"/*.log | sort -u
go run ./test/flakes list "$cache/flakes"
[[ $? -lt 2 ]] || { echo "nightly: a test flaked twice: mend it, or delete it, and then its lines in $cache/flakes"; failed=1; }
exit $failed
