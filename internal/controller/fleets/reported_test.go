package fleets

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// reported makes bert a fleet without Prometheus.
func (w *world) reported() {
	w.Helper()
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Metrics = v1alpha1.FleetMetrics{Preset: presetReported} })
}

// readyPods makes pods of node n1 the ready endpoints of a Service, by their UIDs.
func (w *world) readyPods(service string, uids ...types.UID) {
	w.Helper()
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: service + "-4", Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, uid := range uids {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{NodeName: new("n1"), TargetRef: &v1.ObjectReference{Kind: "Pod", Name: "pod-" + string(uid), UID: uid}})
	}
	other := s.DeepCopy()
	other.Name = service + "-6"
	for _, slice := range []*discoveryv1.EndpointSlice{s, other} {
		must.OK(w.T, w.kube.Discovery().V1().EndpointSlices().Informer().GetIndexer().Add(slice))
	}
}

// report publishes rates of pods: "u1=3.5". A pod without a number is a tenant that reports none.
func (w *world) report(rates ...string) {
	w.Helper()
	w.reportBy("n1", rates...)
}

// reportBy publishes what the agent of a node says of pods.
func (w *world) reportBy(node string, rates ...string) {
	w.Helper()
	n := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.GPUNodeStatus{Devices: make([]v1alpha1.GPUDevice, 2)}}
	for _, r := range rates {
		uid, rate, reports := strings.Cut(r, "=")
		tenant := v1alpha1.GPUTenant{UID: uid}
		if reports {
			q := resource.MustParse(rate)
			tenant.Rate = &q
		}
		for k := range n.Status.Devices { // it is on both devices
			n.Status.Devices[k].Tenants = append(n.Status.Devices[k].Tenants, tenant)
		}
	}
	old := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	_ = w.objects.Delete(w.Context(), old) // there is none at first
	must.OK(w.T, w.objects.Create(w.Context(), n))
}

// The rate of a fleet is what its pods report: bert grows for 66 requests a second as it does by queries.
func TestReportedRates(t *testing.T) {
	w := newWorld(t)
	w.reported()
	w.readyPods("bert-a100", "u1")
	w.report("u1=60", "another=1000")
	w.reportBy("n2", "u1=900000000") // u1 is not there
	w.pass()
	if s := w.fleet("bert").Status; s.Demand != "66" || w.replicas["bert-a100"] != 2 || w.condition(v1alpha1.ConditionMeasured) != "True Measured" {
		t.Errorf("demand %s, replicas %v, %s", s.Demand, w.replicas, w.condition(v1alpha1.ConditionMeasured))
	}
	w.readyPods("bert-a100", "u1", "u2") // the new one reports none yet
	w.pass()
	if got := w.condition(v1alpha1.ConditionMeasured); got != "True Measured" {
		t.Errorf("a new pod: %s", got)
	}
	w.report("u1=50", "u2=50")
	for range 5 { // numbers of the status are written once a minute
		w.pass()
	}
	if got := w.fleet("bert").Status.Demand; got != "110" { // 100 and the margin, since all of what pods report is new
		t.Errorf("demand of two pods: %s", got)
	}
}

// A rate that is not known keeps the sizes.
func TestReportedRatesUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		rates []string
		pods  []types.UID
		want  string
		says  string
	}{
		"an old pod without a rate":     {[]string{"u1", "u2=1"}, []types.UID{"u1", "u2"}, "False NotReported", "pod pod-u1 reports no rate"},
		"a pod on a node without agent": {nil, []types.UID{"u1"}, "False NotReported", "pod pod-u1 reports no rate"},
		"more than anybody serves":      {[]string{"u1=2G"}, []types.UID{"u1"}, "False NotANumber", "variant a100: its pods report 2e+09 requests a second: a number from 0 to 1e+09 is needed"},
		"no pod":                        {[]string{"u1=60"}, nil, "False NoSample", "no ready pod has reported a rate yet"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.reported()
			w.readyPods("bert-a100", test.pods...)
			w.report(test.rates...)
			for range 4 {
				if writes := w.pass(); len(writes) > 0 && strings.HasPrefix(writes[0], "scale") {
					t.Errorf("wrote %q", writes)
				}
			}
			if got := w.condition(v1alpha1.ConditionMeasured); got != test.want || !strings.Contains(w.message(v1alpha1.ConditionMeasured), test.says) {
				t.Errorf("%s %s", got, w.message(v1alpha1.ConditionMeasured))
			}
		})
	}
}

// A pod that has been ready for two minutes without a rate makes the rate of the fleet unknown.
func TestReportedRatesStop(t *testing.T) {
	w := newWorld(t)
	w.reported()
	w.readyPods("bert-a100", "u1")
	w.report("u1=30")
	w.pass()
	w.readyPods("bert-a100", "u1", "u2")
	for range 8 { // 15 s each
		w.pass()
	}
	if got := w.condition(v1alpha1.ConditionMeasured); got != "True Measured" {
		t.Errorf("within two minutes: %s", got)
	}
	w.at = w.at.Add(30 * time.Second)
	w.pass()
	if got := w.condition(v1alpha1.ConditionMeasured); got != "False NotReported" {
		t.Errorf("after two minutes: %s", got)
	}
}

// With Prometheus the latency is measured too.
func TestReportedRatesWithLatency(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) {
		s.Metrics.Preset, s.Metrics.Queries = presetReported, &v1alpha1.FleetQueries{Latency: "latency"}
	})
	w.measure(map[string]string{"latency": "2"})
	w.readyPods("bert-a100", "u1")
	w.report("u1=30")
	w.pass()
	if measured, kept := w.condition(v1alpha1.ConditionMeasured), w.condition(v1alpha1.ConditionPromiseKept); measured != "True Measured" || kept != "False Broken" {
		t.Errorf("Measured %s, PromiseKept %s", measured, kept)
	}
}
