#!/usr/bin/env bash
# Generates deep copies, defaults, conversions, the CRDs, dashboards and alerts, and docs/reference: the arguments, the objects, the
# metrics and the messages.
# `make verify` fails if the result differs from the commit.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(go run ./internal/sandbox/tools controller-gen deepcopy-gen defaulter-gen conversion-gen)
docs=$(go run ./internal/sandbox/tools crd-ref-docs)

# The generators put a licence text at the top of each file; LICENSE says it once for all.
header=$(mktemp)
trap 'rm -f "$header"' EXIT

"$bin/controller-gen" object crd paths=./pkg/api/v1alpha1 \
  output:object:dir=pkg/api/v1alpha1 output:crd:dir=deploy/crds

"$bin/deepcopy-gen" --go-header-file "$header" --output-file zz_generated.deepcopy.go \
  ./pkg/api/config ./pkg/api/config/v1
"$bin/defaulter-gen" --go-header-file "$header" --output-file zz_generated.defaults.go ./pkg/api/config/v1
"$bin/conversion-gen" --go-header-file "$header" --output-file zz_generated.conversion.go ./pkg/api/config/v1

mkdir -p docs/reference
page=$(mktemp)
trap 'rm -f "$header" "$page"' EXIT
go run ./internal/metrics/monitoring deploy/monitoring
go run ./internal/metrics/reference >"$page"
cat "$page" >docs/reference/metrics.md
go run ./internal/messages/reference . >"$page"
cat "$page" >docs/reference/messages.md

reference() { # package, page
  "$docs/crd-ref-docs" --log-level=ERROR --config=hack/reference/config.yaml --templates-dir=hack/reference \
    --source-path="$1" --renderer=markdown --output-path="$page"
  if grep -E '^\| `[^|]*\| [^|]*\| +\|' "$page"; then
    echo "docs/reference/$2: these fields have no meaning; write a comment above each of them in $1" >&2
    return 1
  fi
  cat "$page" >"docs/reference/$2"
}
reference ./pkg/api/config/v1 arguments.md
reference ./pkg/api/v1alpha1 objects.md
