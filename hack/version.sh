#!/usr/bin/env bash
# Prints Tandem's version after git: the tag of the commit; else that of the last tag with the commits since; without a tag what Go
# calls such a commit. Changes that are not committed add "+dirty". Outside of a clone it prints "unknown".
#   hack/version.sh            the version
#   hack/version.sh ldflags    the arguments that stamp it, and the version of Kubernetes' modules, into a program
set -euo pipefail
cd "$(dirname "$0")/.."

version() {
	if [[ -n ${TANDEM_VERSION:-} ]]; then
		echo "$TANDEM_VERSION"
	elif ! git rev-parse -q --verify HEAD >/dev/null 2>&1; then
		echo unknown
	elif ! git describe --tags --match 'v[0-9]*' --abbrev=12 --dirty=+dirty 2>/dev/null; then
		dirty=
		[[ -z $(git status --porcelain --untracked-files=no) ]] || dirty=+dirty
		echo "v0.0.0-$(TZ=UTC git show -s --date=format-local:%Y%m%d%H%M%S --format=%cd HEAD)-$(git rev-parse --short=12 HEAD)$dirty"
	fi
}

if [[ ${1:-} != ldflags ]]; then
	version
	exit
fi
kubernetes=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ { print $2; exit }' go.mod)
IFS=. read -r major minor _ <<<"${kubernetes#v}"
base=k8s.io/component-base/version
echo "-X github.com/tandem-gpu/tandem/internal/version.stamped=$(version)" \
	"-X $base.gitVersion=$kubernetes -X $base.gitMajor=$major -X $base.gitMinor=$minor"
