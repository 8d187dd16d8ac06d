#!/usr/bin/env bash
# Measures speed and holds it against test/benchmark/ranges.yaml: the cost of one pod in the plugin, and the throughput
# beside the stock scheduler; and against test/faults/ranges.yaml what the agent costs its node. The machine should do
# nothing else meanwhile. Everything printed stays in bin/bench.
#   SHORT=1    only clusters of 500 nodes; the others are not checked then
#   ROUNDS=3   how often pods without GPUs, and preemptors, are measured; the medians count. Ours and stock differ by less
#              there than two runs of the same scheduler do
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/bin/bench
rm -rf "$out"
mkdir -p "$out/perf" "$out/logs"

echo "cost of one pod, of one gang, and of the search for victims"
go test -run '^$' -bench . ./pkg/placement ./pkg/plugins/gpushare ./pkg/gang ./pkg/preemption | tee "$out/cost.txt"

hack/test-programs.sh
go run ./internal/sandbox/tools etcd kube-apiserver >/dev/null
echo "cost of the agent: memory and processor time for 80 pods, registration of 800 slots"
go test -run '^$' -bench Agent -benchtime 1x ./test/faults | tee "$out/agent.txt"
go test -run '^$' -bench Registration -benchtime 20x ./test/faults | tee -a "$out/agent.txt"

echo "cost of one run of the simulator: seconds and memory, with TANDEM_DATA"
go test -run '^$' -bench Filling -benchtime 3x ./evaluation/experiment | tee "$out/simulator.txt"

echo "beside the stock scheduler; the first run compiles an API server"
labels=performance
only=
if [[ -n ${SHORT:-} ]]; then
  labels=performance,short
  only=500Nodes
fi
# scheduler_perf logs every pod: into files, so that writing them to a terminal is no part of what is measured.
measure() {
  ARTIFACTS=$out/logs go test -tags bench -run '^$' -bench "$1" -timeout 2h ./test/benchmark \
    -data-items-dir "$out/perf" -perf-scheduling-label-filter "$labels" >"$out/perf-$2.txt" 2>&1 || {
    tail -n 50 "$out/perf-$2.txt"
    exit 1
  }
}
measure AgainstStock 1
for ((round = 2; round <= ${ROUNDS:-3}; round++)); do
  measure 'AgainstStock/(Plain|Preempt)' "$round"
done

echo "what the limits of the deployed scheduler cost: 2,000 pods with them and without, in turns"
go run ./test/benchmark/limits | tee "$out/limits.txt"

go run ./test/benchmark/check -go-bench "$out/cost.txt" -scheduler-perf "$out/perf" -workloads "$only"
