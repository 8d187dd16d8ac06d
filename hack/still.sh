#!/usr/bin/env bash
# Runs a command, and says every 10 seconds that it goes on:  hack/still.sh "demo: compiling" go build …
set -euo pipefail
what=$1
shift
(
	trap 'kill ${pause:-} 2>/dev/null || true; exit' TERM
	while kill -0 $$ 2>/dev/null; do
		sleep 10 >/dev/null 2>&1 & # without the output of this script, whose end its reader waits for
		pause=$!
		wait $pause
		echo "$what, $SECONDS s so far"
	done
) &
ticker=$!
trap 'kill $ticker 2>/dev/null || true' EXIT
"$@"
