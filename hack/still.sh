#!/usr/bin/env bash
# Runs a command, and says every 10 seconds that it goes on:  hack/still.sh "demo: compiling" go build …
set -euo pipefail
what=$1
shift
begin=$SECONDS
(
	trap 'kill $!; exit' TERM
	while true; do
		sleep 10 >/dev/null 2>&1 & # without the output of this script, whose end its reader waits for
		wait $!
		echo "$what, $((SECONDS - begin)) s so far"
	done
) &
trap "kill $!" EXIT
"$@"
