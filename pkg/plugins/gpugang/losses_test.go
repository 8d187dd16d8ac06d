package gpugang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
)

// declareSpread creates a WorkloadProfile with slowdowns by level, and waits until the scheduler has read it.
func (c *cluster) declareSpread(name string, slowdowns map[string]string) {
	c.T.Helper()
	p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for key, slowdown := range slowdowns {
		p.Spec.Spread = append(p.Spec.Spread, v1alpha1.ProfileSpread{TopologyKey: key, Slowdown: intstr.FromString(slowdown)})
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		c.T.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	if _, err := c.Dynamic.Resource(v1alpha1.WorkloadProfiles).Namespace("default").Create(c.T.Context(), u, metav1.CreateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	asks := profiled(name, pod("asks", 10))[0]
	c.Await("the profile "+name+" is read", func() bool { return len(c.plugin.shares().Losses(asks)) == len(slowdowns) })
}

// profiled gives pods a label profile, unless it is "".
func profiled(name string, pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		if name != "" {
			p.Labels[v1alpha1.LabelProfile] = name
		}
	}
	return pods
}

// on lists the nodes of bound pods, with the number of pods on each.
func on(nodes map[string]string) string {
	counts := map[string]int{}
	for _, n := range nodes {
		counts[n]++
	}
	var list []string
	for n, count := range counts {
		list = append(list, fmt.Sprintf("%s:%d", n, count))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// Four members of one GPU each, on four nodes of four GPUs. Half of n1 in one rack and half of n3 in the other are taken.
func TestGangGoesAsFarApartAsItsProfileAllows(t *testing.T) {
	const one, inRack, asSingles = "n2:4", "n1:2 n2:2", "n1:2 n3:2"
	tests := []struct {
		name      string
		slowdowns map[string]string
		want      string
	}{
		{"nothing is known", nil, one},
		{"nodes cost nothing", map[string]string{v1.LabelHostname: "1"}, inRack},
		{"nothing costs anything", map[string]string{v1.LabelHostname: "1", rack: "1.000"}, asSingles},
		{"nodes cost little", map[string]string{v1.LabelHostname: "1.001", rack: "1"}, one},
		{"levels that are not preferred", map[string]string{"example.com/row": "3"}, one},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 4, 4, 4, 4)
				c.takeHalf("n1", "n3")
				profile := ""
				if test.slowdowns != nil {
					profile = "train"
					c.declareSpread(profile, test.slowdowns)
				}
				c.Create(profiled(profile, members("gang", 4, 4, 10)...)...)
				if got := on(c.AwaitBound("gang", 4)); got != test.want {
					t.Errorf("the gang is on %s, want %s", got, test.want)
				}
			})
		})
	}
	t.Run("single pods", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 4, 4, 4, 4)
			c.takeHalf("n1", "n3")
			c.declareSpread("train", map[string]string{v1.LabelHostname: "1"})
			for i := range 4 {
				name := fmt.Sprint("single-", i)
				c.Create(profiled("train", pod(name, 10))...)
				c.AwaitBound(name, 1)
			}
			if got := on(c.Bound("single")); got != asSingles {
				t.Errorf("single pods are on %s, want %s", got, asSingles)
			}
		})
	})
}

// takeHalf fills two GPUs of each node.
func (c *cluster) takeHalf(nodes ...string) {
	c.T.Helper()
	for _, n := range nodes {
		taken := pod("taken-"+n, 20)
		taken.Spec.NodeSelector = map[string]string{v1.LabelHostname: n}
		c.Create(taken)
	}
	c.AwaitBound("taken", len(nodes))
}

// A gang whose workers lose nothing on several nodes and whose servers lose much stays together.
func TestLargestLossOfTheRolesCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, 4, 4, 4)
		c.takeHalf("n1", "n3")
		c.declareSpread("worker", map[string]string{v1.LabelHostname: "1", rack: "1"})
		c.declareSpread("server", map[string]string{v1.LabelHostname: "2"})
		pods := members("gang", 4, 4, 10)
		profiled("worker", pods[:3]...)
		profiled("server", pods[3])
		c.Create(pods...)
		if got := on(c.AwaitBound("gang", 4)); got != "n2:4" {
			t.Errorf("the gang is on %s, want n2:4", got)
		}
	})
}

// telling is a Shares that only tells losses, by the name of the pod.
type telling struct {
	Shares
	losses map[string][]gang.Loss
}

func (s *telling) Losses(pod *v1.Pod) []gang.Loss { return s.losses[pod.Name] }

func TestLosses(t *testing.T) {
	tell := &telling{losses: map[string][]gang.Loss{
		"a": {{Level: "host", Part: 20}, {Level: "rack", Part: 0}},
		"b": {{Level: "host", Part: 10}, {Level: "zone", Part: 300}},
		"c": {{Level: "rack", Part: 900}},
		"z": {{Level: "host", Part: 0}},
	}}
	p := &Plugin{shares: func() Shares { return tell }}
	ending := pod("c", 10)
	ending.DeletionTimestamp = &metav1.Time{}
	tests := []struct {
		name string
		pods []*v1.Pod
		want []gang.Loss
	}{
		{"no loss is declared", []*v1.Pod{pod("x", 10), pod("y", 0)}, nil},
		{"one tells", []*v1.Pod{pod("x", 0), pod("z", 10)}, []gang.Loss{{Level: "host", Part: 0}}},
		{"the largest", []*v1.Pod{pod("z", 10), pod("b", 10), pod("a", 10)},
			[]gang.Loss{{Level: "host", Part: 20}, {Level: "rack", Part: 0}, {Level: "zone", Part: 300}}},
		{"not of those that end", []*v1.Pod{pod("a", 10), ending}, []gang.Loss{{Level: "host", Part: 20}, {Level: "rack", Part: 0}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, members := range [][]*v1.Pod{test.pods, reversed(test.pods)} {
				got := p.losses(&podgroup.Gang{Members: members})
				slices.SortFunc(got, func(a, b gang.Loss) int { return cmp.Compare(a.Level, b.Level) })
				if diff := gocmp.Diff(test.want, got); diff != "" {
					t.Errorf("losses (-want +got):\n%s", diff)
				}
			}
		})
	}
	if want := (gang.Loss{Level: "host", Part: 20}); tell.losses["a"][0] != want {
		t.Errorf("what the profile tells was changed to %v", tell.losses["a"])
	}
}

func reversed(pods []*v1.Pod) []*v1.Pod {
	list := slices.Clone(pods)
	slices.Reverse(list)
	return list
}
