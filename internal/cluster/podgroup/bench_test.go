package podgroup

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// BenchmarkGang measures one change of a member and one look at its gang after it, for 2,000 members.
func BenchmarkGang(b *testing.B) {
	const members = 2000
	w, ref := newWorld(both), Ref{Source: XK8s, Namespace: "ns", Name: "g"}
	w.put(b, xk8sGang("g", members))
	pods := make([]*v1.Pod, members)
	for i := range pods {
		pods[i] = pod(fmt.Sprintf("worker-%d", i), groupLabel, "g", minMembers, "2000", required, "topology.kubernetes.io/zone", preferred, "example.com/rack,nvlink")
		w.put(b, pods[i])
	}
	for i := 0; b.Loop(); i++ {
		bound := with(pods[i%members], func(p *v1.Pod) { p.Spec.NodeName = fmt.Sprint(i) })
		w.put(b, bound)
		if g, err := w.Gang(ref); err != nil || len(g.Members) != members {
			b.Fatal(err)
		}
	}
}
