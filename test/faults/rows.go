package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// Rows returns the table of docs/faults.md, in its order.
func Rows() []Row {
	return append(append(deviceRows(), mpsRows()...), nodeRows()...)
}

// The effect on the pods of a device in most rows.
const (
	unmoved  = "nothing"
	drained  = "running ones a CUDA error when the drain ends them after `health.drainAfter`, then they restart; new ones wait"
	broken   = "running ones a CUDA error at once; they and new ones wait until the device is back"
	condWord = "GPUNode reason %s, condition DevicesHealthy, `tandem_device_health`, `tandem_device_sick`, log"
)

func says(reason string) string { return fmt.Sprintf(condWord, "`"+reason+"`") }

func deviceRows() []Row {
	return []Row{
		{
			Name: "XID of an application (13, 31, 43, 45, …)", How: "XID event of the driver", Pods: "the one that made the mistake, its own error",
			Operator: "`tandem_device_xid_errors_total{class=\"application\"}`, log at V(2); the device stays healthy",
			measure:  counted(struck("XID of an application"), "tandem_device_xid_errors_total", `class="application"`),
		},
		{
			Name: "XID that is over with its clients (94, 32, …)", How: "XID event of the driver", Pods: drained, Operator: says("XID94") + ", `tandem_device_recycles_total`",
			measure: sickness("XID that is over with its clients", "XID94"),
		},
		{
			Name: "XID that asks for a reset (48, 95, 119, …)", How: "XID event; over when the driver's recovery action is none again", Pods: drained,
			Operator: says("XID48") + "; the message says what to do: `nvidia-smi --gpu-reset`; back counts from the reset",
			measure:  sickness("XID that asks for a reset", "XID48"),
		},
		{
			Name: "XID storm", How: "as a single XID; the first of the worst class is kept", Pods: drained, Operator: "as for the worst XID in it; one log line for each at V(2), one write of the GPUNode",
			measure: sickness("XID storm", "XID94"),
		},
		{
			Name: "GPU lost (XID 79)", How: "XID event, then NVML's answer GPU_IS_LOST", Pods: broken, Operator: says("XID79") + "; back counts from when the GPU answers again",
			measure: sickness("GPU lost", "XID79"),
		},
		{
			Name: "GPU lost and back under another index", How: "as above; the list of devices is read again and followed by UUID", Pods: broken, Operator: "as above; the GPUNode shows the new index under the same ID",
			measure: sickness("GPU lost and back under another index", "XID79"),
		},
		{
			Name: "Uncorrected ECC errors", How: "NVML's volatile counter at each look, against the first one", Pods: drained, Operator: says("ECCUncorrected") + "; back counts from when the counter is as it was",
			measure: sickness("uncorrected ECC errors", "ECCUncorrected"),
		},
		{
			Name: "Row remapping failed", How: "NVML's remapped rows at each look", Pods: drained, Operator: says("RowRemapFailed") + "; back counts from when NVML says so no more",
			measure: sickness("row remapping failed", "RowRemapFailed"),
		},
		{
			Name: "Throttling (heat, power)", How: "NVML's clock event reasons at each sample", Pods: "slower work", Operator: "`tandem_device_throttled{reason}`; never a sickness",
			measure: counted(func(_ context.Context, n *Node) error {
				return n.change(n.uuids[0], func(d *fakegpu.Device) { d.ThrottleReasons = 0x40 })
			}, "tandem_device_throttled"),
		},
	}
}

func mpsRows() []Row {
	return []Row{
		{
			Name: "MPS server in FAULT (fatal fault of a client)", How: "`get_server_status` at each look at the control plane", Pods: broken,
			Operator: says("MPSFault") + ", `tandem_device_recycles_total`", measure: faultOfAClient,
		},
		{
			Name: "Client killed at work", How: "as a fault, or by the canary, which is tried sooner when a client has left", Pods: broken,
			Operator: says("MPSFault") + ", `tandem_device_recycles_total`", measure: clientKilled,
		},
		{
			Name: "MPS server wedged (reported by users)", How: "the canary does not get through; tried sooner when a client has left", Pods: "running ones go on until the drain; new ones wait in their first CUDA call, then get an error and restart",
			Operator: says("MPSWedged") + ", `tandem_device_recycles_total`", measure: sickness("MPS server wedged", "MPSWedged"),
		},
		{
			Name: "Pod hangs at its end with work in flight", How: "deletionTimestamp, from the kubelet's Pods API or the API server", Pods: "it: its GPU work ends `termination.margin` before the SIGKILL; neighbours: nothing",
			Operator: "`tandem_agent_clients_ended_total{cause=\"termination\"}`, log at V(2)", Figures: "not measured here: test/e2e checks it in containers",
		},
		{
			Name: "MPS daemon killed", How: "nothing listens in the pipe directory at the next look", Pods: broken, Operator: "log; a new daemon runs before the device counts as sick (`MPSNotRunning` after 30 s)",
			measure: daemonKilled,
		},
		{
			Name: "MPS daemon does not start", How: "as above, 30 s long", Pods: broken, Operator: says("MPSNotRunning") + "; back counts from when it can start",
			measure: sickness("MPS daemon does not start", "MPSNotRunning"),
		},
		{
			Name: "MPS daemon hangs on a command", How: "two looks in a row without an answer", Pods: "running ones go on until the daemon is replaced; new ones wait", Operator: says("MPSNotAnswering") + ", `tandem_device_recycles_total`",
			measure: sickness("MPS daemon hangs", "MPSNotAnswering"),
		},
		{
			Name: "Stale pipe directory, its PID somebody else's", How: "nothing listens; the recorded process is no MPS daemon of this directory, and is left alone", Pods: broken, Operator: "log; a new daemon runs",
			measure: staleDirectory,
		},
		{
			Name: "No CUDA library for the canary", How: "the canary finds no libcuda.so.1", Pods: unmoved, Operator: "GPUNode condition Monitored `NoCUDA`, `tandem_device_monitored` 0; devices take work",
			measure: withoutLibrary("libcuda.so.1", func(ctx context.Context, n *Node) error {
				return n.condition(ctx, v1alpha1.ConditionMonitored, v1alpha1.MonitoredNoCUDA)
			}), spoils: true,
		},
		{
			Name: "A pod asks for more contexts than are left", How: "clients counted before the container starts", Pods: "it waits; its event says how many contexts are in use", Operator: "`tandem_agent_prestart_failures_total{reason=\"ContextsExhausted\"}`; GPUNode `contextsUsed`; back counts from when clients have left",
			measure: contextsExhausted,
		},
	}
}

func nodeRows() []Row {
	return []Row{
		{
			Name: "Agent killed", How: "the kubelet's connection breaks", Pods: "running ones nothing; a pod that is bound meanwhile is rejected by the kubelet", Operator: "the node offers 0 slots; back counts from the start of the next agent, which adopts MPS",
			measure: agentKilled,
		},
		{
			Name: "Two agents on one node", How: "a lock in the state folder", Pods: unmoved, Operator: "the second one ends with a message that names the first",
			measure: func(ctx context.Context, n *Node) (Times, error) {
				begin := time.Now()
				err := struck("second agent")(ctx, n)
				return Times{time.Since(begin), never}, errors.Join(err, n.healthy(ctx))
			},
		},
		{
			Name: "Kubelet restarted", How: "the kubelet's socket is a new file", Pods: unmoved, Operator: "GPUNode condition Ready `NotRegistered` meanwhile, `tandem_agent_registered` 0; back counts from the start of the kubelet",
			measure: kubeletRestarted,
		},
		{
			Name: "Own checkpoint corrupted", How: "checksum at the agent's start", Pods: unmoved, Operator: "`tandem_agent_checkpoint_errors_total{owner=\"agent\"}`, log; the broken file is kept beside; rebuilt from the CDI specs and the kubelet's checkpoint",
			measure: ownCheckpoint,
		},
		{
			Name: "Kubelet's checkpoint corrupted", How: "checksum at each use", Pods: "running ones nothing; new app containers start, init containers wait", Operator: "`tandem_agent_checkpoint_errors_total{owner=\"kubelet\"}`, log; over with the kubelet's next write",
			measure: counted(struck("kubelet's checkpoint corrupted"), "tandem_agent_checkpoint_errors_total", `owner="kubelet"`),
		},
		{
			Name: "Disk full under the agent's checkpoint", How: "the write fails", Pods: "running ones nothing; new ones are rejected at admission", Operator: "the pod's event says that there is no space left; back counts from when there is",
			measure: diskFull,
		},
		{
			Name: "Clock jump", How: "not at all: spans are taken on the monotonic clock", Pods: unmoved, Operator: "nothing", Figures: "not measured: a process's clock cannot be moved alone; property tests of the state machine hold no clock",
		},
		{
			Name: "No NVIDIA driver", How: "libnvidia-ml.so.1 is missing, or does not answer", Pods: "the node offers no slots", Operator: "GPUNode condition Ready `NoDriver`, /readyz 503 with the reason; tried again within a minute; back counts from when the library is there",
			measure: withoutLibrary("libnvidia-ml.so.1", func(ctx context.Context, n *Node) error {
				return n.condition(ctx, v1alpha1.ConditionReady, v1alpha1.ReadyNoDriver)
			}), spoils: true,
		},
		{
			Name: "8 GPUs × 100 slots", How: "–", Pods: unmoved, Operator: "registration and first list of 800 slots: see BenchmarkRegistration", Figures: "not a fault: a size that must work",
		},
	}
}
