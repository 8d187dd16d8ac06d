package integration

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// situations are those of TestKueue. Four nodes of four GPUs are in two racks.
func situations() []situation {
	return []situation{
		{"fractions within the quota", []step{{
			submit: []queued{{name: "halves", queue: "a", pods: 8, slots: 5}}, want: map[string]outcome{"halves": runsWith(8)},
		}}},
		{"the quota of memory ends before that of slots", []step{{
			submit: []queued{{name: "memory", queue: "a", pods: 17, slots: 1, memory: "40Gi"}},
			want:   map[string]outcome{"memory": {says: "insufficient quota for tandem-gpu.io/vgpu-memory"}},
		}}},
		{"a team borrows what the other leaves idle", []step{{
			submit: []queued{{name: "borrows", queue: "a", pods: 12, slots: 10}}, want: map[string]outcome{"borrows": runsWith(12)},
		}}},
		{"nobody gets more than both teams have", []step{{
			submit: []queued{{name: "huge", queue: "a", pods: 17, slots: 10}},
			want:   map[string]outcome{"huge": {says: "insufficient quota for tandem-gpu.io/vgpu"}},
		}}},
		{"what was borrowed goes back", []step{
			{submit: []queued{{name: "own", queue: "a", pods: 8, slots: 10}}, want: map[string]outcome{"own": runsWith(8)}},
			{submit: []queued{{name: "borrowed", queue: "a", pods: 4, slots: 10}}, want: map[string]outcome{"borrowed": runsWith(4)}},
			{
				submit: []queued{{name: "owner", queue: "b", pods: 8, slots: 10}},
				want:   map[string]outcome{"owner": runsWith(8), "own": runsWith(8), "borrowed": {evicted: true}},
			},
			{leave: []string{"owner"}, want: map[string]outcome{"borrowed": again(4)}},
		}},
		{"Kueue preempts within a team by priority", []step{
			{submit: []queued{{name: "low", queue: "a", pods: 8, slots: 10, class: low}}, want: map[string]outcome{"low": runsWith(8)}},
			{submit: []queued{{name: "other", queue: "b", pods: 8, slots: 10, class: low}}, want: map[string]outcome{"other": runsWith(8)}},
			{
				submit: []queued{{name: "high", queue: "a", pods: 4, slots: 10, class: high}},
				want:   map[string]outcome{"high": runsWith(4), "low": {evicted: true}, "other": runsWith(8)},
			},
			{leave: []string{"high"}, want: map[string]outcome{"low": again(8)}},
		}},
		{"a gang comes into one rack", []step{
			{submit: []queued{{name: "small", queue: "b", pods: 3, slots: 10}}, want: map[string]outcome{"small": runsWith(3)}},
			{
				submit: []queued{{name: "gang", queue: "a", pods: 8, slots: 10, gang: true, required: rackLabel}},
				want:   map[string]outcome{"gang": {admitted: true, bound: 8, racks: 1, check: placeable.Ready}},
			},
		}},
		{"a gang beyond a rack gives its quota back", []step{
			{
				submit: []queued{{name: "gang", queue: "a", pods: 9, slots: 10, gang: true, required: rackLabel}},
				want:   map[string]outcome{"gang": {evicted: true, says: "Previously: Retry"}},
			},
			{submit: []queued{{name: "all", queue: "b", pods: 16, slots: 10}}, want: map[string]outcome{"all": runsWith(16), "gang": {evicted: true}}},
		}},
		{"quota without room waits, and no pod is made", []step{
			{
				others: alone("alone", "", 12),
				submit: []queued{{name: "waits", queue: "a", pods: 8, slots: 10}},
				want:   map[string]outcome{"waits": {check: placeable.Pending, says: "needs 8 × 1 GPU; the cluster takes 4"}},
			},
			{leave: []string{"alone"}, want: map[string]outcome{"waits": runsWith(8)}},
		}},
		{"the scheduler preempts pods that Kueue does not know", []step{{
			others: alone("alone", low, 16),
			submit: []queued{{name: "high", queue: "a", pods: 4, slots: 10, class: high}},
			want:   map[string]outcome{"high": runsWith(4), "alone": {bound: 12}},
		}}},
		{"the scheduler evicts pods of an admitted Job, and Kueue leaves it", []step{
			{submit: []queued{{name: "low", queue: "a", pods: 16, slots: 10, class: low}}, want: map[string]outcome{"low": runsWith(16)}},
			{others: alone("alone", high, 2), want: map[string]outcome{"low": runsWith(14), "alone": {bound: 2}}},
			{leave: []string{"alone"}, want: map[string]outcome{"low": runsWith(16)}},
		}},
		{"a Job without GPUs starts in a full cluster", []step{
			{submit: []queued{{name: "full", queue: "a", pods: 16, slots: 10}}, want: map[string]outcome{"full": runsWith(16)}},
			{
				submit: []queued{{name: "cores", queue: "b", pods: 1, slots: 0, change: byDefaultScheduler}},
				want:   map[string]outcome{"cores": {admitted: true, check: placeable.Ready, says: "No pod asks for a GPU"}, "full": runsWith(16)},
			},
		}},
		{"a queue gets the check while its Job runs in a full cluster", []step{
			{
				others: checksOf("team-a"),
				submit: []queued{{name: "runs", queue: "a", pods: 16, slots: 10}},
				want:   map[string]outcome{"runs": {admitted: true, bound: 16, unchecked: true}},
			},
			{
				others: checksOf("team-a", "placeable"),
				want:   map[string]outcome{"runs": {admitted: true, bound: 16, check: placeable.Ready, says: "It runs already"}},
			},
		}},
		{"a malformed request is rejected", []step{{
			submit: []queued{{name: "wrong", queue: "a", pods: 1, slots: 5, change: malformed}},
			want:   map[string]outcome{"wrong": {evicted: true, says: "Previously: Rejected"}},
		}}},
	}
}

// byDefaultScheduler leaves the pods of a Job to another scheduler, which does not run here.
func byDefaultScheduler(job *batchv1.Job) { job.Spec.Template.Spec.SchedulerName = "" }

// malformed has a Job ask for a limit that is not legal.
func malformed(job *batchv1.Job) {
	job.Spec.Template.Annotations[v1alpha1.AnnotationComputeLimit] = "all"
}
