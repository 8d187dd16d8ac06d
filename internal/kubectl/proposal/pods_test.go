package proposal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/kubectl/proposal"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// pod returns a Pod with metadata, and with fields of the spec before its container.
func pod(metadata, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {" + metadata + "}\nspec: {" + spec + "containers: [{name: main, image: x, resources: {requests: {cpu: 500m}, limits: {tandem-gpu.io/vgpu: 3, tandem-gpu.io/vgpu-memory: 6Gi}}}]}\n"
}

func TestPods(t *testing.T) {
	got, err := proposal.Pods([]byte("# what comes\n---\n"+
		pod("name: p, annotations: {tandem-gpu.io/gpu-models: A100}", "priority: 7, activeDeadlineSeconds: 60, ")+"---\n"+
		"apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: g, namespace: b}\nspec: {schedulingPolicy: {gang: {minCount: 2}}}\n---\n"+
		pod("name: w-0, namespace: b", "schedulingGroup: {podGroupName: g}, ")+"---\n"+pod("name: w-1, namespace: b", "schedulingGroup: {podGroupName: g}, ")), "team", noon)
	must.OK(t, err)
	request := func() *snapshot.Request {
		return &snapshot.Request{MilliCPU: 500, Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: 3, MemoryBytes: 6 << 30}}}
	}
	first := request()
	first.Priority, first.EndsAfterSeconds, first.Models = 7, 90, []snapshot.ModelRequest{{Model: "A100"}}
	g := snapshot.GangName{Source: "scheduling.k8s.io", Namespace: "b", Name: "g"}
	want := &proposal.Added{
		Pods: []snapshot.Pending{
			{Name: name("team", "p", "added-00001"), Since: noon, Request: first},
			{Name: name("b", "w-0", "added-00002"), Gang: &g, Since: noon, Request: request()},
			{Name: name("b", "w-1", "added-00003"), Gang: &g, Since: noon, Request: request()},
		},
		Gangs: []snapshot.Gang{{GangName: g, MinCount: 2, Members: 2, Phase: "Unplaced", Need: "Incomplete"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func name(namespace, name, uid string) snapshot.Name {
	return snapshot.Name{Namespace: namespace, Name: name, UID: vgpu.UID(uid)}
}

// A Job has the pods that run at once, each until the deadline of the Job.
func TestJob(t *testing.T) {
	got, err := proposal.Pods([]byte("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  parallelism: 2\n  completions: 9\n  activeDeadlineSeconds: 90\n  template:\n"+
		"    metadata: {labels: {tandem-gpu.io/gang: j}, annotations: {tandem-gpu.io/min-members: \"2\", tandem-gpu.io/required-topology: nvlink, tandem-gpu.io/max-slowdown: \"1.2\"}}\n"+
		"    spec: {nodeSelector: {a: b}, containers: [{name: main, image: x, resources: {limits: {tandem-gpu.io/vgpu: 1}}}]}\n"), "team", noon)
	must.OK(t, err)
	if len(got.Pods) != 2 || got.Pods[1].Path() != "team/j-1" || got.Pods[1].Request.EndsAfterSeconds != 120 || got.Gangs[0].Members != 2 || got.Gangs[0].MinCount != 2 {
		t.Errorf("%+v", got)
	}
	want := []string{"pods that a Job creates when others have ended", "node selectors, affinities and spread constraints", "promised slowdowns", "topologies of gangs"}
	if diff := cmp.Diff(want, got.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

// A Job runs no more pods at once than it has to complete.
func TestJobWithFewCompletions(t *testing.T) {
	got, err := proposal.Pods([]byte("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  parallelism: 8\n  completions: 2\n  template:\n"+
		"    spec: {containers: [{name: main, image: x, resources: {limits: {tandem-gpu.io/vgpu: 1}}}]}\n"), "team", noon)
	if err != nil || len(got.Pods) != 2 || len(got.Notes) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A container asks for its limits where it asks for nothing else, as the API server writes it.
func TestLimitsAreRequests(t *testing.T) {
	got, err := proposal.Pods([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: main, image: x, resources: {requests: {memory: 1Gi}, limits: {cpu: 64, memory: 2Gi, tandem-gpu.io/vgpu: 1}}}]}\n"), "team", noon)
	if err != nil || got.Pods[0].Request.MilliCPU != 64000 || got.Pods[0].Request.MemoryBytes != 1<<30 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A pod as kubectl get -o yaml gives it has a node already: its copy waits for a place, which is noted.
func TestCopyOfAPodWithANode(t *testing.T) {
	got, err := proposal.Pods([]byte(pod("name: p", "nodeName: n1, ")), "team", noon)
	if err != nil || len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "spec.nodeName: ") {
		t.Errorf("%+v, %v, want a note of spec.nodeName", got, err)
	}
}

func TestPodsRefuses(t *testing.T) {
	for _, test := range []struct{ name, raw, says string }{
		{"nothing", "# empty\n", "there are no pods"},
		{"no YAML", "{", "document 1"},
		{"another kind", "apiVersion: apps/v1\nkind: Deployment\n", `document 1: kind: "Deployment" of "apps/v1", legal are Pod`},
		{"no kind", "metadata: {name: x}\n", "legal are Pod"},
		{"no kind behind a comment", "# web\nkin: Pod\n---\n" + pod("name: p", ""), "document 1: kind"},
		{"gates", pod("name: p", "schedulingGates: [{name: example.com/quota}], "), `spec.schedulingGates: "example.com/quota"; legal is none`},
		{"suspended", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {suspend: true}\n", "job j: spec.suspend: true; legal is false"},
		{"no completions", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {completions: 0}\n", "job j: spec.completions: 0, legal is 1 or more"},
		{"unknown field", pod("name: p", "priorty: 1, "), `unknown field "spec.priorty"`},
		{"no GPU", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: main}]}\n", "pod team/p: spec.containers[].resources.limits[tandem-gpu.io/vgpu]: no container has it"},
		{"bad slots", strings.Replace(pod("name: p", ""), "vgpu: 3", "vgpu: -3", 1), "spec.containers[0].resources.limits[tandem-gpu.io/vgpu]"},
		{"bad annotation", pod("name: p, annotations: {tandem-gpu.io/compute-limit: fast}", ""), "metadata.annotations[tandem-gpu.io/compute-limit]"},
		{"priority class", pod("name: p", "priorityClassName: high, "), `spec.priorityClassName: "high"`},
		{"rate", pod("name: p, annotations: {tandem-gpu.io/rate: \"5\"}", ""), "metadata.annotations[tandem-gpu.io/rate]"},
		{"gang without a number", pod("name: p, labels: {tandem-gpu.io/gang: g}", ""), "metadata.annotations[tandem-gpu.io/min-members]: it is missing"},
		{"gang without a name", pod("name: p, annotations: {tandem-gpu.io/min-members: \"2\"}", ""), "metadata.labels[tandem-gpu.io/gang]"},
		{"unknown PodGroup", pod("name: p, labels: {scheduling.x-k8s.io/pod-group: g}", ""), "PodGroup team/g is not in the file"},
		{"group without a name", pod("name: p", "schedulingGroup: {}, "), "spec.schedulingGroup"},
		{"bad PodGroup", "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 0}\n", "spec.minMember"},
		{"no parallelism", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 0}\n", "job j: spec.parallelism: 0, legal is 1 to 10000"},
		{"too many", strings.Repeat("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 6000}\n---\n", 2), "more pods than are legal, 10000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			added, err := proposal.Pods([]byte(test.raw), "team", noon)
			if err == nil || !strings.Contains(err.Error(), test.says) || added != nil {
				t.Errorf("the error is %v, want %q in it; added %v", err, test.says, added)
			}
		})
	}
}
