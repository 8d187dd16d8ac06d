package placeable

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

const (
	topology = v1alpha1.AnnotationRequiredTopology
	elastic  = v1alpha1.AnnotationElasticWorkers
)

// TestDecide asks about Workloads on four nodes of two GPUs with ten slots and 40 GiB each: n0 and n1 in rack r0, n2 and n3 in r1.
func TestDecide(t *testing.T) {
	taintAll := func(o *snapshot.Objects) {
		for _, n := range o.Nodes {
			n.Spec.Taints = []v1.Taint{{Key: "gpu", Effect: v1.TaintEffectNoSchedule}}
		}
	}
	sick := func(o *snapshot.Objects) {
		for _, g := range o.GPUNodes {
			for i := range g.Status.Devices {
				g.Status.Devices[i].Health = v1alpha1.Unhealthy
			}
		}
	}
	for _, c := range []struct {
		name string
		work *Workload
		// taken are slots of every device that pods of a priority have, and change is what else is unlike.
		taken    int
		priority int32
		change   func(*snapshot.Objects)
		state    State
		says     []string
	}{
		{"no GPU at all", work("w", set("main", 500, template(0, cores("900")))), 10, 0, nil, Ready, []string{"No pod asks for a GPU"}},
		{"an init container alone asks", work("w", set("main", 9, template(0, first("10")))), 0, 0, nil, Retry, []string{"needs 9 × 1 GPU"}},
		{"halves of all GPUs", work("w", set("main", 16, template(5))), 0, 0, nil, Ready, []string{"16 of 16 pods have places on 4 nodes"}},
		{"one half too many", work("w", set("main", 17, template(5))), 0, 0, nil, Retry,
			[]string{"The podset main needs 17 × 5 of 10 slots; the cluster takes at most 16", "more or other nodes would"}},
		{"quota for eight GPUs, which are sixteen halves", work("w", set("main", 8, template(10))), 5, 0, nil, Pending,
			[]string{"The podset main needs 8 × 1 GPU; the cluster takes 0", "after ns/old-"}},
		{"fractions beside fractions", work("w", set("main", 8, template(5))), 5, 0, nil, Ready, []string{"8 of 8 pods"}},
		{"memory that the slots leave, and devices do not", work("w", set("main", 1, template(1, memory("30Gi")))), 5, 0, nil, Pending, []string{"the cluster takes 0"}},
		{"more memory than a device has", work("w", set("main", 1, template(10, memory("41Gi")))), 0, 0, nil, Retry, []string{"takes at most 0"}},
		{"a gang in one rack", work("w", set("main", 4, template(10, inGang("train", "4", topology, rack)))), 0, 0, nil, Ready, []string{"4 of 4 pods have places on 2 nodes"}},
		{"a gang larger than a rack", work("w", set("main", 5, template(10, inGang("train", "5", topology, rack)))), 0, 0, nil, Retry,
			[]string{"The gang ns/train needs 5 × 1 GPU in one example.com/rack", "takes at most 4"}},
		{"a gang in a level that no node has", work("w", set("main", 2, template(10, inGang("train", "2", topology, "example.com/row")))), 0, 0, nil, Retry,
			[]string{"no node has example.com/row"}},
		{"two podsets of one gang", work("w", set("ps", 1, template(5, inGang("train", "4", topology, rack))), set("worker", 3, template(10, inGang("train", "4", topology, rack)))),
			0, 0, nil, Ready, []string{"4 of 4 pods"}},
		{"two podsets of one gang, together larger than a rack", work("w", set("ps", 1, template(5, inGang("train", "5", topology, rack))),
			set("worker", 4, template(10, inGang("train", "5", topology, rack)))), 0, 0, nil, Retry, []string{"The gang ns/train needs 1 × 5 of 10 slots and 4 × 1 GPU"}},
		{"podsets that fit alone, and not together", work("w", set("a", 6, template(10)), set("b", 3, template(10))), 0, 0, nil, Pending, []string{"The podset b needs 3 × 1 GPU", "takes 2"}},
		{"an elastic gang of which the least number fits", work("w", set("main", 12, template(10, inGang("train", "2", elastic, "2-12")))), 0, 0, nil, Ready,
			[]string{"8 of 12 pods", "enough to start"}},
		{"an elastic gang of which too few fit", work("w", set("main", 12, template(10, inGang("train", "10", elastic, "10-12")))), 0, 0, nil, Retry, []string{"needs 10 × 1 GPU"}},
		{"more cores than the hosts have", work("w", set("main", 8, template(1, cores("40")))), 0, 0, nil, Retry, []string{"hosts keep members out"}},
		{"a flavor of one rack", grant(work("w", set("main", 4, template(10))), 4, "r1"), 0, 0, nil, Ready, []string{"4 of 4 pods have places on 2 nodes"}},
		{"more than a flavor has", grant(work("w", set("main", 5, template(10))), 5, "r1"), 0, 0, nil, Retry, []string{"takes at most 4"}},
		{"a flavor without nodes", grant(work("w", set("main", 1, template(1))), 1, "r7"), 0, 0, nil, Retry, []string{"takes at most 0"}},
		{"nodes with a taint", work("w", set("main", 1, template(1))), 0, 0, taintAll, Retry, []string{"takes at most 0"}},
		{"nodes with a taint that the flavor tolerates", grant(work("w", set("main", 1, template(1))), 1, "tainted"), 0, 0, taintAll, Ready, nil},
		{"quota for a part of the pods", grant(work("w", set("main", 9, template(10))), 8, ""), 0, 0, nil, Ready, []string{"8 of 8 pods"}},
		{"quota for the rest of a gang, of which two are done", reclaim(grant(work("w", set("main", 4, template(10, inGang("train", "4")))), 2, ""), 2), 0, 0, nil, Ready, []string{"2 of 2 pods"}},
		{"quota for less than the rest of a gang", reclaim(grant(work("w", set("main", 4, template(10, inGang("train", "4")))), 1, ""), 2), 0, 0, nil, Retry, []string{"quota for 1 pods, and at least 2 must run"}},
		{"quota for less than a gang", grant(work("w", set("main", 9, template(10, inGang("train", "4")))), 3, ""), 0, 0, nil, Retry, []string{"quota for 3 pods, and at least 4 must run"}},
		{"sick devices", work("w", set("main", 1, template(1))), 0, 0, sick, Pending, []string{"devices that take no pods now, such as sick or cordoned ones, would make up for it"}},
		{"full of a lower priority", work("w", set("main", 8, template(10, class("high")))), 10, 10, nil, Ready, []string{"8 of 8 pods", "evicted pods of a lower priority"}},
		{"full of the same priority", work("w", set("main", 1, template(10, class("high")))), 10, 1000, nil, Pending, []string{"takes 0"}},
		{"full of a lower priority, and a class that never preempts", work("w", set("main", 1, template(10, class("polite")))), 10, 10, nil, Pending, []string{"takes 0"}},
		{"no device anywhere", work("w", set("main", 1, template(1))), 0, 0, func(o *snapshot.Objects) { o.GPUNodes = nil }, Retry, []string{"takes at most 0"}},
		{"memory without slots", work("w", set("main", 1, template(0, memory("8Gi")))), 0, 0, nil, Rejected,
			[]string{"spec.podSets[0].template.spec.containers[0].resources.limits[tandem-gpu.io/vgpu]", "needs slots too"}},
		{"a gang without its least number", work("w", set("a", 1, template(1)), set("b", 1, template(1, func(t *v1.PodTemplateSpec) { t.Labels[v1alpha1.LabelGang] = "train" }))),
			0, 0, nil, Rejected, []string{"spec.podSets[1].template.metadata.annotations[tandem-gpu.io/min-members]: it is missing"}},
		{"a malformed limit", work("w", set("main", 1, template(1, annotate(v1alpha1.AnnotationComputeLimit, "80%")))), 0, 0, nil, Rejected,
			[]string{`spec.podSets[0].template.metadata.annotations[tandem-gpu.io/compute-limit]: "80%" is not legal`}},
		{"malformed elastic sizes", work("w", set("main", 4, template(1, inGang("train", "2", elastic, "four")))), 0, 0, nil, Rejected, []string{"elastic-workers]"}},
		{"a gang whose other members are of other workloads", work("w", set("main", 3, template(1, inGang("train", "4")))), 0, 0, nil, Ready,
			[]string{"3 of 3 pods", "The gang ns/train waits for 1 members of other workloads"}},
		{"a part of a gang that does not fit", work("w", set("main", 9, template(10, inGang("train", "10")))), 0, 0, nil, Retry, []string{"needs 9 × 1 GPU"}},
		{"a gang with a member that runs on hosts without GPUs", work("w", set("launcher", 1, template(0, inGang("train", "9"), onNodes("cpu"))), set("worker", 8, template(10, inGang("train", "9")))),
			0, 0, nil, Ready, []string{"8 of 8 pods have places on 4 nodes"}},
		{"such a gang that is too large", work("w", set("launcher", 1, template(0, inGang("train", "10"), onNodes("cpu"))), set("worker", 9, template(10, inGang("train", "10")))),
			0, 0, nil, Retry, []string{"needs 9 × 1 GPU"}},
		{"podsets of a gang that disagree", work("w", set("a", 1, template(1, inGang("train", "2"))), set("b", 1, template(1, inGang("train", "2", topology, rack)))), 0, 0, nil, Rejected,
			[]string{"spec.podSets[1].template.metadata.annotations[tandem-gpu.io/required-topology]", "must be the same for all members"}},
		{"annotations of a gang without a gang", work("w", set("main", 1, template(1, annotate(topology, rack)))), 0, 0, nil, Rejected, []string{"metadata.labels[tandem-gpu.io/gang]"}},
		{"absurdly many pods", work("w", set("main", 10_001, template(1))), 0, 0, nil, Rejected, []string{"spec.podSets[0].count: the check looks at up to 10000 pods"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := racks()
			if c.taken > 0 {
				o.Pods = everywhere(t, slots(c.taken), c.priority)
			}
			if c.change != nil {
				c.change(&o)
			}
			v := viewOf(t, o)
			before := drawn(v)
			got := v.Decide(c.work)
			if got.State != c.state {
				t.Errorf("the answer is %s: %s", got.State, got.Message)
			}
			for _, text := range c.says {
				if !strings.Contains(got.Message, text) {
					t.Errorf("the answer says %q, without %q", got.Message, text)
				}
			}
			if got.State != Ready && drawn(v) != before {
				t.Errorf("a Workload that does not fit took places:\n%s", drawn(v))
			}
		})
	}
}

// The check counts on the evictions that the scheduler makes by the arguments of its GPUPreempt, and on no others.
func TestDecideByArgumentsOfPreemption(t *testing.T) {
	for name, c := range map[string]struct {
		args   *config.GPUPreemptArgs
		change func(*v1.Pod)
		want   State
	}{
		"defaults":         {preemption(t), nil, Ready},
		"no preemption":    {nil, nil, Pending},
		"mode Disabled":    {preemption(t, func(a *config.GPUPreemptArgs) { a.Mode = config.PreemptionDisabled }), nil, Pending},
		"mode DryRun":      {preemption(t, func(a *config.GPUPreemptArgs) { a.Mode = config.PreemptionDryRun }), nil, Pending},
		"kube-system":      {preemption(t), func(p *v1.Pod) { p.Namespace = metav1.NamespaceSystem }, Pending},
		"no namespaces":    {preemption(t, func(a *config.GPUPreemptArgs) { a.Protected.Namespaces = nil }), func(p *v1.Pod) { p.Namespace = metav1.NamespaceSystem }, Ready},
		"other namespaces": {preemption(t, func(a *config.GPUPreemptArgs) { a.Protected.Namespaces = []string{"ns"} }), nil, Pending},
		"protected labels": {preemption(t, func(a *config.GPUPreemptArgs) {
			a.Protected.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "true"}}
		}), func(p *v1.Pod) { p.Labels["keep"] = "true" }, Pending},
		"mirror pods": {preemption(t), func(p *v1.Pod) { p.Annotations[v1.MirrorPodAnnotationKey] = "" }, Pending},
		"young pods": {preemption(t, func(a *config.GPUPreemptArgs) { a.MinimumRuntime.Duration = time.Hour }), func(p *v1.Pod) {
			p.Status.StartTime = new(metav1.NewTime(noon.Add(-59 * time.Minute)))
		}, Pending},
		"old pods": {preemption(t, func(a *config.GPUPreemptArgs) { a.MinimumRuntime.Duration = time.Hour }), func(p *v1.Pod) {
			p.Status.StartTime = new(metav1.NewTime(noon.Add(-time.Hour)))
		}, Ready},
	} {
		o := racks()
		o.Pods = everywhere(t, 10, 10)
		for _, p := range o.Pods {
			if c.change != nil {
				c.change(p)
			}
		}
		v := viewOf(t, o)
		var err error
		v.Guards, err = guardsOf(c.args)
		must.OK(t, err)
		if got := v.Decide(work("w", set("main", 1, template(10, class("high"))))); got.State != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// A pod of one slot that wants a rate gets as many slots as the curves say: those of the arguments, or of its profile where its namespace may use
// its own. If no device reaches the rate, the Workload is tried again: its user may correct the profile.
func TestDecideByCurves(t *testing.T) {
	given, err := workloads.GivenCurves(&config.GPUShareArgs{
		ModelCosts:  []config.ModelCost{{Model: testkit.A100.Name, Cost: resource.MustParse("1")}},
		Throughputs: []config.Throughput{{Profile: "bert", Model: testkit.A100.Name, Share: 100, Rate: resource.MustParse("200")}},
	})
	must.OK(t, err)
	allowed := func(string) bool { return true }
	for _, c := range []struct {
		name   string
		curves workloads.Curves
		own    int64 // the rate on a whole device by the profile, 0 for no profile
		taken  vgpu.Slots
		state  State
		says   string
	}{
		{"five slots, and five are free", given, 0, 5, Ready, "1 of 1 pods"},
		{"five slots, and three are free", given, 0, 7, Pending, "takes 0"},
		{"no curve", workloads.Curves{}, 0, 0, Retry, "metadata.annotations[tandem-gpu.io/rate]"},
		{"a curve that does not reach the rate", workloads.Curves{Own: allowed}, 90, 0, Retry, "metadata.annotations[tandem-gpu.io/rate]"},
		{"a curve of the namespace, which may not use it", workloads.Curves{}, 200, 0, Retry, workloads.LabelOwnCurves},
		{"a curve of the namespace, which may use it, and three slots are free", workloads.Curves{Own: allowed}, 200, 7, Pending, "takes 0"},
		{"a curve of the namespace, which may use it", workloads.Curves{Own: allowed}, 200, 5, Ready, "1 of 1 pods"},
	} {
		o := racks()
		if c.taken > 0 {
			o.Pods = everywhere(t, c.taken, 0)
		}
		v := viewOf(t, o)
		v.Curves = c.curves
		if c.own > 0 {
			profile := v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert"}}
			profile.Spec.Throughputs = []v1alpha1.ProfileThroughput{{Model: testkit.A100.Name, SharePercent: 100, Rate: resource.NewQuantity(c.own, resource.DecimalSI)}}
			v.Profiles.Set([]v1alpha1.WorkloadProfile{profile})
		}
		wants := template(1, annotate(v1alpha1.AnnotationRate, "100"), func(t *v1.PodTemplateSpec) { t.Labels[v1alpha1.LabelProfile] = "bert" })
		if got := v.Decide(work("w", set("main", 1, wants))); got.State != c.state || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v, want %s with %q", c.name, got, c.state, c.says)
		}
	}
}

// A pod that names several gangs is in the one that the scheduler takes: a PodGroup that the API server does not serve gives way to the label. The
// least number is the label's then; of a PodGroup the check takes all pods.
func TestDecideByServedPodGroups(t *testing.T) {
	for _, c := range []struct {
		served podgroup.Served
		want   State
	}{
		{podgroup.Served{}, Ready},
		{podgroup.Served{XK8s: true}, Retry},
		{podgroup.Served{Native: "v1"}, Ready},
	} {
		v := viewOf(t, racks())
		v.Served = c.served
		grouped := template(10, inGang("train", "2"), func(t *v1.PodTemplateSpec) { t.Labels[membership.LabelPodGroup] = "train" })
		if got := v.Decide(work("w", set("main", 12, grouped))); got.State != c.want {
			t.Errorf("%+v: %+v, want %s", c.served, got, c.want)
		}
	}
	alone := template(10, func(t *v1.PodTemplateSpec) { t.Labels[membership.LabelPodGroup] = "train" })
	for served, want := range map[podgroup.Served]State{{}: Retry, {Native: "v1"}: Retry, {XK8s: true}: Ready} {
		v := viewOf(t, racks())
		v.Served = served
		got := v.Decide(work("w", set("main", 2, alone)))
		if says := strings.Contains(got.Message, "the API server serves no PodGroups of"); got.State != want || says != (want == Retry) {
			t.Errorf("%+v, without the gang's label: %+v, want %s", served, got, want)
		}
	}
}

// A rate or a latency that only a new template makes legal is refused for good, also behind a podset that waits for a curve.
func TestDecideIllegalWishes(t *testing.T) {
	bert := func(t *v1.PodTemplateSpec) { t.Labels[v1alpha1.LabelProfile] = "bert" }
	waits := template(1, annotate(v1alpha1.AnnotationRate, "100"), bert)
	if got := viewOf(t, racks()).Decide(work("w", set("waits", 1, waits))); got.State != Retry {
		t.Errorf("a rate without a curve: %+v", got)
	}
	for field, illegal := range map[string]v1.PodTemplateSpec{
		"annotations[" + v1alpha1.AnnotationRate + `]: "fast"`:       template(1, annotate(v1alpha1.AnnotationRate, "fast"), bert),
		"annotations[" + v1alpha1.AnnotationMaxLatency + `]: "soon"`: template(1, annotate(v1alpha1.AnnotationMaxLatency, "soon"), bert),
		"labels[" + v1alpha1.LabelProfile + "]":                      template(1, annotate(v1alpha1.AnnotationRate, "100")),
	} {
		got := viewOf(t, racks()).Decide(work("w", set("waits", 1, waits), set("main", 1, illegal)))
		if got.State != Rejected || !strings.Contains(got.Message, "spec.podSets[1].template.metadata."+field) {
			t.Errorf("%s: %+v", field, got)
		}
	}
}

// Memory that was learned refuses no pod, as in the scheduler: a framework that takes all the memory that it may held more where it had more.
func TestDecideByDeclaredMemory(t *testing.T) {
	for name, want := range map[string]State{"declared": Retry, "learned": Ready} {
		profile := v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert"}}
		memory := new(resource.MustParse("70Gi"))
		if name == "declared" {
			profile.Spec.Uses = []v1alpha1.DeclaredUse{{Model: testkit.A100.Name, Memory: memory}}
		} else {
			profile.Status.Learned = []v1alpha1.LearnedUse{{Model: testkit.A100.Name, Memory: memory, SoloObservations: 100}}
		}
		v := viewOf(t, racks())
		v.Profiles.Set([]v1alpha1.WorkloadProfile{profile})
		pods := template(10, func(t *v1.PodTemplateSpec) { t.Labels[v1alpha1.LabelProfile] = "bert" })
		if got := v.Decide(work("w", set("main", 1, pods))); got.State != want {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
}

// Workloads of one pass do not get the same devices.
func TestDecideInTurn(t *testing.T) {
	v := viewOf(t, racks())
	for i, want := range []State{Ready, Ready, Pending} {
		if got := v.Decide(work(fmt.Sprint("w", i), set("main", 4, template(10)))); got.State != want {
			t.Errorf("Workload %d: %+v, want %s", i, got, want)
		}
	}
	for _, n := range v.Cluster.Nodes {
		must.OK(t, n.Check())
	}
}

// A Workload that takes the place of pods of a lower priority leaves none of it for the next one.
func TestDecideInTurnByPreemption(t *testing.T) {
	o := racks()
	o.Pods = everywhere(t, 10, 0)
	v := viewOf(t, o)
	for i, want := range []State{Ready, Ready, Pending} {
		if got := v.Decide(work(fmt.Sprint("w", i), set("main", 4, template(10, class("high"))))); got.State != want {
			t.Errorf("Workload %d: %+v, want %s", i, got, want)
		}
	}
}

// Room is made on the nodes of the Workload alone: pods of a lower priority keep theirs on other nodes.
func TestDecideEvictsWhereItRuns(t *testing.T) {
	o := racks()
	o.Pods = everywhere(t, 10, 0)
	v := viewOf(t, o)
	if got := v.Decide(work("high", set("main", 4, template(10, class("high"))))); got.State != Ready {
		t.Errorf("a Workload that may preempt: %+v", got)
	}
	if got := v.Decide(work("low", set("main", 1, template(10)))); got.State != Pending {
		t.Errorf("a Workload that may not preempt: %+v", got)
	}
}

// Pods of a lower priority whose devices nobody needs keep them, the most urgent ones first: others do not get these.
func TestDecideEvictsNoMoreThanItNeeds(t *testing.T) {
	o := racks()
	for i, p := range everywhere(t, 10, 500) {
		if i < 2 { // on n0
			*p.Spec.Priority = int32(i)
		}
		o.Pods = append(o.Pods, p)
	}
	v := viewOf(t, o)
	for i, p := range o.Pods {
		if i >= 2 {
			*p.Spec.Priority = 1000
		}
	}
	if got := v.Decide(work("one", set("main", 1, template(10, class("high"))))); got.State != Ready || !strings.Contains(got.Message, "lower priority") {
		t.Fatalf("a Workload that may preempt: %+v", got)
	}
	if got := v.Decide(work("low", set("main", 1, template(10)))); got.State != Pending {
		t.Errorf("the device of a pod that the scheduler leaves alone: %+v", got)
	}
	if _, stays := v.Cluster.Placed(o.Pods[1]); !stays {
		t.Error("the pod of the higher priority lost its device")
	}
	if got := v.Decide(work("two", set("main", 1, template(10, class("high"))))); got.State != Ready {
		t.Errorf("a second Workload that may preempt, for the device of the pod that stayed: %+v", got)
	}
	for _, n := range v.Cluster.Nodes {
		must.OK(t, n.Check())
	}
}

// If one of the pods that may be evicted from a device can stay, it is the one of the highest priority.
func TestDecideEvictsTheLeastUrgent(t *testing.T) {
	for _, lower := range []int{0, 1} {
		o := racks()
		o.Pods = everywhere(t, 10, 1000)[1:]
		for i := range 2 {
			p := runs(t, fmt.Sprint("half-", i), "n0", 0, 5, 1)
			if i == lower {
				*p.Spec.Priority = 0
			}
			o.Pods = append(o.Pods, p)
		}
		v := viewOf(t, o)
		if got := v.Decide(work("half", set("main", 1, template(5, class("high"))))); got.State != Ready {
			t.Fatalf("half of a device: %+v", got)
		}
		halves := o.Pods[len(o.Pods)-2:]
		if _, stays := v.Cluster.Placed(halves[1-lower]); !stays {
			t.Errorf("pod %d of the higher priority lost its device", 1-lower)
		}
		if _, stays := v.Cluster.Placed(halves[lower]); stays {
			t.Errorf("pod %d of the lower priority kept its device", lower)
		}
	}
}

// A Workload that was answered a moment ago has its places before its pods have nodes, and the pods do not count twice.
func TestKeep(t *testing.T) {
	for bound, want := range map[int]State{0: Ready, 2: Ready} {
		o := racks()
		w := work("started", set("main", 4, template(10)))
		w.OwnerReferences = owner("job")
		for i := range bound {
			p := runs(t, fmt.Sprint("started-", i), "n0", i, 10, 0)
			p.OwnerReferences = owner("job")
			o.Pods = append(o.Pods, p)
		}
		v := viewOf(t, o)
		v.keep(w)
		if got := v.Decide(work("four", set("main", 4, template(10)))); got.State != want {
			t.Errorf("with %d pods bound, four more GPUs: %+v", bound, got)
		}
		if got := v.Decide(work("five", set("main", 1, template(10)))); got.State != Pending {
			t.Errorf("with %d pods bound, a fifth GPU more: %+v", bound, got)
		}
	}
}

// Places are kept for the pods of each podset that have no node yet. Pods that ended or are about to end count for none.
func TestKeepByPodset(t *testing.T) {
	for name, c := range map[string]struct {
		slots  vgpu.Slots
		change func(*v1.Pod)
		free   int32
	}{
		"of another podset":    {5, func(p *v1.Pod) { p.Labels[podSetLabel] = "side" }, 3},
		"of this podset":       {10, func(p *v1.Pod) { p.Labels[podSetLabel] = "main" }, 3},
		"of no podset":         {10, func(*v1.Pod) {}, 3},
		"that ended":           {10, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, 3},
		"that is about to end": {10, func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) }, 3},
		"without GPUs":         {10, func(p *v1.Pod) { p.Spec.Containers, p.Annotations = nil, nil }, 3},
	} {
		o := racks()
		w := work("started", set("main", 4, template(10)), set("side", 1, template(5)))
		w.OwnerReferences = owner("job")
		p := runs(t, "started-0", "n0", 0, c.slots, 0)
		p.OwnerReferences = owner("job")
		c.change(p)
		o.Pods = append(o.Pods, p)
		v := viewOf(t, o)
		v.keep(w)
		if got := v.Decide(work("more", set("main", c.free+1, template(10)))); got.State == Ready {
			t.Errorf("beside a pod %s: %+v for %d more GPUs", name, got, c.free+1)
		}
		if got := v.Decide(work("rest", set("main", c.free, template(10)))); got.State != Ready {
			t.Errorf("beside a pod %s: %+v for %d GPUs", name, got, c.free)
		}
	}
}

func TestPatient(t *testing.T) {
	for _, c := range []struct {
		state State
		held  time.Duration
		want  State
	}{
		{Pending, 59 * time.Second, Pending}, {Pending, time.Minute, Retry}, {Ready, time.Hour, Ready}, {Rejected, time.Hour, Rejected}, {Retry, 0, Retry},
	} {
		if got := (Answer{State: c.state}).Patient(c.held, time.Minute).State; got != c.want {
			t.Errorf("%s after %v: %s, want %s", c.state, c.held, got, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	for tries, want := range map[int32]time.Duration{0: time.Minute, 1: 2 * time.Minute, 4: 16 * time.Minute, 5: 30 * time.Minute, 1 << 30: 30 * time.Minute} {
		if got := backoff(tries); got != want {
			t.Errorf("after %d tries: %v, want %v", tries, got, want)
		}
	}
}

// Messages stay within what the API takes.
func TestCut(t *testing.T) {
	if got := cut(strings.Repeat("ä", maxMessage)); len(got) > maxMessage+3 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-8:])
	}
}
