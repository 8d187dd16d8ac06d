package deploy

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const byLatency = "ValidatingAdmissionPolicy 'tandem-latency'"

// promises returns a change of the latency that a pod promises.
func promises(raw string, subresources ...string) request {
	return patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationMaxLatency, raw), subresources...)
}

// The policy admits what internal/cluster/kube reads.
func TestLatencies(t *testing.T) {
	c := client(t.Context(), t, jane)
	p := create(t.Context(), t, c, pod("serves"))
	nines := "999999999"
	for _, raw := range []string{
		"40ms", "1us", "1µs", "1h", "60m", "1.5s", "1m0.5s", "0h0m1s", "0.000000001h", "000000001h", "3600s", "3600000000us", "0.5h30m", "1000000us1s", "59m59.999999999s",
		"", "soon", "40", "0", "0s", "-40ms", "+40ms", "0.5us", "999.999ns", "61m", "1h1us", "1.0000001h", "1d", "40 ms", " 40ms", "40ms ", "40MS", "1h1h", "1e3ms",
		".5s", "5.s", "1s1s1s1s1s", "0000000001s", "0.0000000001h", "1μs", "99999h", "100000m", nines + "h", nines + "m", nines + "s" + nines + "h",
		nines + "h" + nines + "h" + nines + "h" + nines + "h", "99999h99999h99999h99999h", nines + "s" + nines + "s" + nines + "s" + nines + "s", "1us" + nines + "m1us",
	} {
		t.Run(raw, func(t *testing.T) {
			fresh := pod("fresh")
			metav1.SetMetaDataAnnotation(&fresh.ObjectMeta, v1alpha1.AnnotationMaxLatency, raw)
			metav1.SetMetaDataLabel(&fresh.ObjectMeta, v1alpha1.LabelProfile, "bert")
			_, _, malformed := workloads.WantedLatency(fresh, &vgpu.Request{Containers: []vgpu.ContainerRequest{{Name: fresh.Spec.Containers[0].Name, Slots: 1}}})
			_, onCreate := c.CoreV1().Pods(team).Create(t.Context(), fresh, dryRun)
			onUpdate := promises(raw)(t.Context(), c, p)
			for _, err := range []error{onCreate, onUpdate} {
				if malformed != nil {
					wantRefusal(t, err, byLatency, "metadata.annotations[tandem-gpu.io/max-latency]: ", "is not legal, it must be a duration from 1us to 1h")
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A running pod keeps a value that can be read, whoever writes it.
func TestLatencyOfRunningPods(t *testing.T) {
	p := createBound(t.Context(), t, genuine)
	for _, who := range []account{jane, admin} {
		c := client(t.Context(), t, who)
		if err := promises("40ms")(t.Context(), c, p); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, promises("soon")(t.Context(), c, p), byLatency, `"soon" is not legal`)
	}
	wantRefusal(t, promises("soon", "status")(t.Context(), client(t.Context(), t, admin), p), byLatency)
	wantRefusal(t, promises(strings.Repeat("9", 10_000))(t.Context(), client(t.Context(), t, jane), p), byLatency, strings.Repeat("9", 64)+"…")
	remove := patch(types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationMaxLatency))
	if err := remove(t.Context(), client(t.Context(), t, jane), p); err != nil {
		t.Error(err)
	}
}

// A pod that got a malformed value before the policy was there stays usable.
func TestOldLatenciesStay(t *testing.T) {
	p := pod("old-latency")
	p.Annotations = map[string]string{v1alpha1.AnnotationMaxLatency: "soon"}
	p = createOld(t, p, "tandem-latency")
	if err := patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`)(t.Context(), client(t.Context(), t, jane), p); err != nil {
		t.Error(err)
	}
	wantRefusal(t, promises("sooner")(t.Context(), client(t.Context(), t, jane), p), byLatency)
	if err := promises("40ms")(t.Context(), client(t.Context(), t, jane), p); err != nil {
		t.Error(err)
	}
}
