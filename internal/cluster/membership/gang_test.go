package membership

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/test/pods"
)

// The levels of the API and of the placement are the same word.
func TestNVLink(t *testing.T) {
	if v1alpha1.TopologyNVLink != gang.NVLink {
		t.Errorf("users write %q, package gang reads %q", v1alpha1.TopologyNVLink, gang.NVLink)
	}
}

func TestGangsOf(t *testing.T) {
	pod := &v1.Pod{}
	if got := GangsOf(pod); got != (GangNames{}) {
		t.Errorf("a pod that names none names %+v", got)
	}
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{}
	if got := GangsOf(pod); got != (GangNames{Grouped: true}) {
		t.Errorf("a pod with an empty scheduling group names %+v", got)
	}
	pod.Spec.SchedulingGroup.PodGroupName = new("n")
	pod.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "x", "tandem-gpu.io/gang": "l"}
	if got := GangsOf(pod); got != (GangNames{Native: "n", Grouped: true, XK8s: "x", Label: "l"}) {
		t.Errorf("got %+v", got)
	}
}

func TestSpeaksOfGang(t *testing.T) {
	for _, test := range []struct {
		labels, annotations map[string]string
		want                bool
	}{
		{},
		{labels: map[string]string{"app": "x"}, annotations: map[string]string{"tandem-gpu.io/rate": "1"}},
		{labels: map[string]string{"tandem-gpu.io/gang": ""}, want: true},
		{annotations: map[string]string{"tandem-gpu.io/min-members": ""}, want: true},
		{annotations: map[string]string{"tandem-gpu.io/required-topology": "x"}, want: true},
		{annotations: map[string]string{"tandem-gpu.io/preferred-topology": "x"}, want: true},
		{annotations: map[string]string{"tandem-gpu.io/elastic-workers": ""}, want: true},
		{annotations: map[string]string{"tandem-gpu.io/elastic-resize": "size-fields"}, want: true},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: test.labels, Annotations: test.annotations}}
		if got := SpeaksOfGang(pod); got != test.want {
			t.Errorf("labels %v, annotations %v: %v", test.labels, test.annotations, got)
		}
	}
	const want = "metadata.labels[tandem-gpu.io/gang]: it names no gang; the annotations tandem-gpu.io/min-members, tandem-gpu.io/required-topology, " +
		"tandem-gpu.io/preferred-topology, tandem-gpu.io/elastic-workers and tandem-gpu.io/elastic-resize are for the members of a gang: name it by the label, or remove them; set the label and the pod is tried again"
	if got := NamelessGang().Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMinMembers(t *testing.T) {
	const legal = "it must be a whole number from 1 to 10000, the least number of members that may run; correct the annotation and the pod is tried again"
	for raw, want := range map[string]string{
		"1": "", "8": "", "10000": "", "007": "",
		"":                      "it is empty, " + legal,
		"0":                     `"0" is not legal, ` + legal,
		"-1":                    `"-1" is not legal, ` + legal,
		"+4":                    `"+4" is not legal, ` + legal,
		"10001":                 `"10001" is not legal, ` + legal,
		"four":                  `"four" is not legal, ` + legal,
		"4.0":                   `"4.0" is not legal, ` + legal,
		"4 4":                   `"4 4" is not legal, ` + legal,
		"0x4":                   `"0x4" is not legal, ` + legal,
		"1_0":                   `"1_0" is not legal, ` + legal,
		"999999999999999999999": `"999999999999999999999" is not legal, ` + legal,
	} {
		got, err := MinMembers(pods.Annotated(&v1.Pod{}, v1alpha1.AnnotationMinMembers, raw))
		if want == "" {
			if n, _ := strconv.Atoi(raw); err != nil || got != n {
				t.Errorf("%q: %d, %v", raw, got, err)
			}
		} else if err == nil || err.Error() != "metadata.annotations[tandem-gpu.io/min-members]: "+want {
			t.Errorf("%q: %d, %v\nwant %s", raw, got, err, want)
		}
	}
	if _, err := MinMembers(&v1.Pod{}); err == nil || err.Error() != "metadata.annotations[tandem-gpu.io/min-members]: it is missing: "+legal {
		t.Errorf("missing: %v", err)
	}
}

func TestLikeness(t *testing.T) {
	pod := func(change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"tandem-gpu.io/min-members": "4"}}}
		p.Spec.SchedulerName = "tandem-scheduler"
		change(p)
		return p
	}
	one := LikenessOf(pod(func(*v1.Pod) {}))
	tests := []struct {
		name                string
		change              func(*v1.Pod)
		field, value, other string
	}{
		{name: "alike", change: func(p *v1.Pod) { p.Name, p.Labels = "y", map[string]string{"a": "b"} }},
		{name: "the defaults, written out", change: func(p *v1.Pod) {
			p.Spec.Priority, p.Spec.PreemptionPolicy = new(int32(0)), new(v1.PreemptLowerPriority)
		}},
		{"scheduler", func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" }, "spec.schedulerName", "tandem-scheduler", "default-scheduler"},
		{"priority", func(p *v1.Pod) { p.Spec.Priority = new(int32(-5)) }, "spec.priority", "0", "-5"},
		{"preemption", func(p *v1.Pod) { p.Spec.PreemptionPolicy = new(v1.PreemptNever) }, "spec.preemptionPolicy", "PreemptLowerPriority", "Never"},
		{
			"number", func(p *v1.Pod) { p.Annotations["tandem-gpu.io/min-members"] = "5" },
			"metadata.annotations[tandem-gpu.io/min-members]", `"4"`, `"5"`,
		},
		{
			"no number", func(p *v1.Pod) { p.Annotations = nil },
			"metadata.annotations[tandem-gpu.io/min-members]", `"4"`, "none",
		},
		{
			"required", func(p *v1.Pod) { p.Annotations["tandem-gpu.io/required-topology"] = "" },
			"metadata.annotations[tandem-gpu.io/required-topology]", "none", `""`,
		},
		{
			"preferred", func(p *v1.Pod) { p.Annotations["tandem-gpu.io/preferred-topology"] = strings.Repeat("a", 99) },
			"metadata.annotations[tandem-gpu.io/preferred-topology]", "none", `"` + strings.Repeat("a", 63) + "…",
		},
		{
			"elastic", func(p *v1.Pod) { p.Annotations["tandem-gpu.io/elastic-workers"] = "1-8" },
			"metadata.annotations[tandem-gpu.io/elastic-workers]", "none", `"1-8"`,
		},
		{
			"resize", func(p *v1.Pod) { p.Annotations["tandem-gpu.io/elastic-resize"] = "size-fields" },
			"metadata.annotations[tandem-gpu.io/elastic-resize]", "none", `"size-fields"`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			other := LikenessOf(pod(test.change))
			field, value, its := one.Difference(other)
			if diff := cmp.Diff([]string{test.field, test.value, test.other}, []string{field, value, its}); diff != "" {
				t.Errorf("difference (-want +got):\n%s", diff)
			}
			key := strings.TrimSuffix(strings.TrimPrefix(test.field, "metadata.annotations["), "]")
			if field, _, _ := one.Difference(other, "others", key); key != test.field && field != "" {
				t.Errorf("besides the annotation they differ in %s", field)
			}
		})
	}
}

func TestRankOf(t *testing.T) {
	member := func(name, owner string, labels ...string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		for i := 0; i < len(labels); i += 2 {
			p.Labels[labels[i]] = labels[i+1]
		}
		if owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Name: owner, Controller: new(true)}}
		}
		return p
	}
	const (
		index   = "batch.kubernetes.io/job-completion-index"
		replica = "training.kubeflow.org/replica-index"
		kind    = "training.kubeflow.org/replica-type"
		role    = "training.kubeflow.org/job-role"
		pod     = "apps.kubernetes.io/pod-index"
		job     = "jobset.sigs.k8s.io/job-global-index"
		group   = "leaderworkerset.sigs.k8s.io/group-index"
		worker  = "leaderworkerset.sigs.k8s.io/worker-index"
	)
	tests := []struct {
		name string
		// members in their order.
		members []*v1.Pod
	}{
		{"names, numbers in them as numbers", []*v1.Pod{
			member("a", ""), member("worker", ""), member("worker-0", ""), member("worker-2", ""), member("worker-10", ""),
			member("worker-10-a", ""), member("worker-99999999999999999999", ""), member("worker-100000000000000000000", ""), member("x", ""),
		}},
		{"leading zeros decide last", []*v1.Pod{
			member("w-1", ""), member("w-01", ""), member("w-001", ""), member("w-1-a", ""), member("w-02", ""),
		}},
		{"indexed Job: the random end of the name says nothing", []*v1.Pod{
			member("job-zzzzz", "job", index, "0"), member("job-yyyyy", "job", index, "2"), member("job-aaaaa", "job", index, "10"),
		}},
		{"an MPI launcher, made by a Job, comes before its workers", []*v1.Pod{
			member("mpi-launcher-x7k2p", "mpi-launcher", role, "launcher"),
			member("mpi-worker-0", "mpi", replica, "0", role, "worker"), member("mpi-worker-1", "mpi", replica, "1", role, "worker"),
		}},
		{"a PyTorchJob's master comes before the worker of its index", []*v1.Pod{
			member("pt-zmaster-0", "pt", replica, "0", kind, "Master"),
			member("pt-worker-0", "pt", replica, "0", kind, "Worker"), member("pt-worker-1", "pt", replica, "1", kind, "Worker"),
		}},
		{"a Ray head comes first", []*v1.Pod{
			member("ray-head-a", "ray", "ray.io/node-type", "head"), member("ray-g-worker-0", "ray", "ray.io/node-type", "worker"),
		}},
		{"the Jobs of a JobSet stay together", []*v1.Pod{
			member("set-b-0-0-x", "set-b-0", job, "0", index, "0"), member("set-b-0-1-x", "set-b-0", job, "0", index, "1"),
			member("set-a-0-0-x", "set-a-0", job, "1", index, "0"), member("set-a-1-0-x", "set-a-1", job, "2", index, "0"),
		}},
		{"the groups of a LeaderWorkerSet stay together, whatever the StatefulSets number", []*v1.Pod{
			member("lws-0", "lws", group, "0", worker, "0", pod, "0"), member("lws-0-1", "lws-0", group, "0", worker, "1", pod, "9"), member("lws-0-2", "lws-0", group, "0", worker, "2", pod, "5"),
			member("lws-1", "lws", group, "1", worker, "0", pod, "1"), member("lws-1-1", "lws-1", group, "1", worker, "1", pod, "1"),
		}},
		{"two controllers with numbers of their own", []*v1.Pod{
			member("ps-0", "ps", pod, "0"), member("ps-1", "ps", pod, "1"), member("w-0", "w", pod, "0"), member("w-1", "w", pod, "1"),
		}},
		{"two indexed Jobs", []*v1.Pod{
			member("ps-x", "ps", index, "0"), member("ps-a", "ps", index, "1"), member("w-x", "w", index, "0"), member("w-a", "w", index, "1"),
		}},
		{"numbers that are none count as missing", []*v1.Pod{
			member("a", "", index, "x"), member("b", "", index, "-5"), member("c", "", index, "99999999999"), member("z", "", index, "0"),
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			shuffled := slices.Clone(test.members)
			rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			slices.SortFunc(shuffled, func(a, b *v1.Pod) int { return RankOf(a).Compare(RankOf(b)) })
			names := func(pods []*v1.Pod) (out []string) {
				for _, p := range pods {
					out = append(out, p.Name)
				}
				return out
			}
			if diff := cmp.Diff(names(test.members), names(shuffled)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRankProperty: the order is total, and only a pod of the same name is at the same place.
func TestRankProperty(t *testing.T) {
	pod := rapid.Custom(func(t *rapid.T) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: rapid.StringMatching(`[ab0-]{1,4}|w-[01]{1,3}`).Draw(t, "name"), Labels: map[string]string{}}}
		if owner := rapid.SampledFrom([]string{"", "o1", "o01", "o2"}).Draw(t, "owner"); owner != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Name: owner, Controller: new(true)}}
		}
		for _, n := range numberings {
			for _, label := range []string{n.outer, n.index} {
				if value := rapid.SampledFrom([]string{"", "", "", "0", "1", "x"}).Draw(t, "label"); value != "" && label != "" {
					p.Labels[label] = value
				}
			}
		}
		p.Labels[roleLabels[0]] = rapid.SampledFrom([]string{"launcher", "worker"}).Draw(t, "role")
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := RankOf(pod.Draw(t, "a")), RankOf(pod.Draw(t, "b")), RankOf(pod.Draw(t, "c"))
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%+v and %+v: %d and %d", a, b, a.Compare(b), b.Compare(a))
		}
		if a.Compare(b) == 0 && a.name != b.name {
			t.Fatalf("%q and %q are at the same place", a.name, b.name)
		}
		if a.Compare(b) < 0 && b.Compare(c) < 0 && a.Compare(c) >= 0 {
			t.Fatalf("%+v < %+v < %+v, and not the first < the last", a, b, c)
		}
	})
}

func FuzzMinMembers(f *testing.F) {
	for _, raw := range []string{"1", "8", "10000", "0", "-1", "", "+1", "１", "1e3", "10001"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		n, err := MinMembers(pods.Annotated(&v1.Pod{}, v1alpha1.AnnotationMinMembers, raw))
		if err == nil && (n < 1 || n > MaxMinMembers || strings.TrimLeft(raw, "0") != strconv.Itoa(n)) {
			t.Fatalf("%q is %d", raw, n)
		}
	})
}

func FuzzRank(f *testing.F) {
	f.Add("worker-2", "worker-10")
	f.Add("a1b01", "a01b1")
	f.Add("", "0")
	f.Fuzz(func(t *testing.T, a, b string) {
		if x, y := naturally(a, b), naturally(b, a); x != -y || (x == 0) != (a == b) {
			t.Fatalf("%q and %q: %d and %d", a, b, x, y)
		}
	})
}
