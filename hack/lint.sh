#!/usr/bin/env bash
# gofmt, how sentences begin, and golangci-lint, of which go vet is a part. golangci-lint remembers what it has checked by the paths of the files: the tree
# is checked in a copy whose path does not change, so that each clone of a machine profits from the others.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$(go run ./internal/sandbox/tools golangci-lint):$PATH"

unformatted=$(gofmt -l $(git ls-files '*.go'))
if [[ -n $unformatted ]]; then
	echo "gofmt -w" $unformatted
	exit 1
fi

go test ./test/prose # how sentences begin, in comments and pages

copy=${TANDEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tandem}/lint
mkdir -p "$copy"
exec 9>"$copy/.lock"
flock 9
rm -rf "$copy/tree"
mkdir "$copy/tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -c -T - | tar -x -C "$copy/tree" # without files that were deleted
# With -trimpath, clones share what cgo generates, and its lines name the folder of the clone that came first, where golangci-lint looks
# for the sources. These files differ from those of each clone, so what is generated of them names the copy.
grep -rlZ '^import "C"$' --include='*.go' "$copy/tree" | xargs -0 sed -i '$a // This is a copy for golangci-lint.'
for module in . tools/image tools/release tools/site; do # the last three are modules of their own
	(cd "$copy/tree/$module" && golangci-lint run ./...)
done
