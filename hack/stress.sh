#!/usr/bin/env bash
# Runs the tests beside busy loops, in changing order: no test may depend on how fast the machine is.
#
#   ROUNDS=3 LOAD=3 hack/stress.sh PACKAGES      LOAD busy loops a core; with the tests that is four times what the cores can do
set -euo pipefail
cd "$(dirname "$0")/.."

loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true' EXIT
for _ in $(seq $((${LOAD:-3} * $(nproc)))); do
	(while kill -0 $$ 2>/dev/null; do for _ in {1..100000}; do :; done; done) & # it ends with this script, however that ends
	loops+=($!)
done
failed=0
for round in $(seq "${ROUNDS:-3}"); do
	echo "stress: round $round of ${ROUNDS:-3}, beside ${#loops[@]} busy loops on $(nproc) cores"
	hack/test.sh -count=1 -shuffle=on -timeout=4h -- "$@" || failed=$((failed + 1))
done
echo "stress: $failed of ${ROUNDS:-3} rounds failed; lines FLAKE above name tests that passed when they were repeated"
[[ $failed == 0 ]]
