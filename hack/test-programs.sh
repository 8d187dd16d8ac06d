#!/usr/bin/env bash
# Builds the programs that tests start into bin/test, where sandbox.Program finds them. No test builds them: Go's test cache knows only of
# what a test opens, not of what it builds. A program whose bytes are the same stays as it is, with its time, so that cached results of tests
# stay valid: go build would touch it. So go builds into bin/test/.new, which is kept, since go links only what has changed there.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_CFLAGS=${CGO_CFLAGS--Wno-deprecated-declarations} # go-nvml's header marks functions deprecated that cgo still has to name
mkdir -p bin/test/.new
exec 9>bin/test/.lock
flock 9 # one build at a time

# What is newer than this file was perhaps not built.
touch bin/test/.began
# As releases, without what only debuggers read. The commit is left out too: with it, each commit would make all of them anew.
build=(go build -buildvcs=false -ldflags='-s -w')
"${build[@]}" -o bin/test/.new/ ./cmd/scheduler ./cmd/controller ./cmd/shadow ./cmd/activator ./cmd/device-plugin ./test/fakegpu/cmd/tenant
"${build[@]}" -o bin/test/.new/controller-fastclock -tags=fastclock ./cmd/controller

for program in scheduler controller controller-fastclock shadow activator device-plugin tenant; do
	name=${program/device-plugin/agent}
	if ! cmp -s "bin/test/.new/$program" "bin/test/$name"; then
		cp "bin/test/.new/$program" "bin/test/.$name"
		# Go's test cache goes by size and time: the same bytes have the same time again when a change is taken back.
		touch -d "@$((16#$(sha256sum <"bin/test/.$name" | cut -c1-7)))" "bin/test/.$name"
		mv "bin/test/.$name" "bin/test/$name" # a test that runs the former one keeps it
	fi
done
mv bin/test/.began bin/test/.built
