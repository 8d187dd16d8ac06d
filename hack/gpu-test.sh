#!/usr/bin/env bash
# Measures what MPS and the agent do on this machine's first NVIDIA GPU, or packs the programs that do so.
#   gpu-test.sh run    builds the suite and runs it until all figures are taken, in runs of 9 minutes
#   gpu-test.sh pack   makes bin/gpu-test, a folder of under 64 MiB; on the other machine: sh bin/gpu-test/run.sh
# OUT=bin/gpu/report.json is the file for the figures. One that exists is gone on with. PARTS="sm memory" runs some parts only.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_CFLAGS=-Wno-deprecated-declarations
out=${OUT:-bin/gpu/report.json}

build() {
  echo "gpu-test: compiling the suite and the agent (minutes, the first time)" >&2
  mkdir -p "$1"
  go build -ldflags "-s -w" -o "$1/gpu" ./test/gpu
  go build -ldflags "-s -w" -o "$1/device-plugin" ./cmd/device-plugin
  cp test/gpu/models.py "$1/models.py"
}

case "${1:-}" in
run)
  build bin/gpu
  while true; do
    status=0
    # shellcheck disable=SC2086 # PARTS is a list
    bin/gpu/gpu run ${PARTS:-} --out="$out" --agent=bin/gpu/device-plugin --models=bin/gpu/models.py || status=$?
    [[ $status == 3 ]] || break
    echo "gpu-test: going on with what is left"
  done
  [[ $status == 0 ]] || exit "$status"
  bin/gpu/gpu table "$out"
  ;;
pack)
  rm -rf bin/gpu-test
  build bin/gpu-test
  gzip -9 bin/gpu-test/gpu bin/gpu-test/device-plugin
  cat >bin/gpu-test/run.sh <<'RUN'
#!/bin/sh
# Measures what MPS and Tandem's agent do on this machine's first NVIDIA GPU: 9 minutes at most. Exit status 3: run it again, it goes
# on. report.json has the figures. Arguments are those of `gpu run`: parts, and flags such as --budget=5m.
cd "$(dirname "$0")" || exit
for f in gpu device-plugin; do
  if [ ! -x "$f" ]; then
    gunzip -kf "$f.gz" && chmod +x "$f" || exit
  fi
done
exec ./gpu run --out=report.json --agent=./device-plugin --models=models.py "$@"
RUN
  chmod +x bin/gpu-test/run.sh
  du -sh bin/gpu-test
  ;;
*)
  echo "gpu-test.sh: want run or pack" >&2
  exit 2
  ;;
esac
