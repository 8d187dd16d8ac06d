package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// fleetPlay is a test that knows a fleet and its controller by the API alone.
type fleetPlay struct {
	name string
	run  func(*testing.T, *fleetScene)
	// real: the play is worth an API server at each commit. Needs says why it has to have one, "" where it has not.
	real  bool
	needs string
}

func fleetPlays() []fleetPlay {
	return []fleetPlay{
		{name: "the example is legal", run: fleetExample, real: true, needs: "a Prometheus that is not there"},
		{name: "a fleet grows and shrinks", run: fleetGrowsAndShrinks, real: true},
		{name: "the controller is killed between two writes", run: fleetKilled},
		{name: "another writer of the route", run: fleetConflicts, real: true},
		{name: "owners that the controller refuses", run: fleetOwners},
		{name: "two fleets with one target", run: fleetTaken},
		{name: "a user holds the sizes", run: fleetHeld},
		{name: "values that the schema refuses", run: fleetRefused, real: true},
		{name: "replicas that a profile describes", run: fleetOfProfile},
		{name: "a class of requests has a rule of its own", run: fleetClasses},
		{name: "classes that the schema refuses", run: classesRefused, real: true},
	}
}

// playFleetInBubble plays a scene in a bubble.
func playFleetInBubble(t *testing.T, run func(*testing.T, *fleetScene)) {
	t.Helper()
	c := &fleetCluster{measured: map[string]float64{}, prometheus: "http://prometheus.example"}
	c.gangCluster = newBubble(t, gangModes()[0], http.HandlerFunc(c.answer))
	c.startReplicas(t)
	t.Cleanup(func() { c.controller.Stop(0) })
	c.restart(t)
	(&fleetScene{fleetCluster: c, namespace: "team"}).play(t, run)
}

// TestFleets runs the controller as it is built, under the rights of its account, with the CustomResourceDefinitions of the Gateway API. One of
// the scenes kills the controller; the others hold all the same. The controller's clock is faster, unless the environment asks for all plays.
func TestFleets(t *testing.T) {
	t.Parallel()
	speed := usualSpeed
	if everything() {
		speed = 0
	}
	c := startFleetCluster(t, speed)
	t.Run("side by side", func(t *testing.T) {
		for _, p := range fleetPlays() {
			if p.real || everything() {
				c.in(t, p.name, p.run)
			}
		}
	})
	select {
	case <-c.controller.Done():
		t.Errorf("the controller ended: %v\n%s", c.controller.Err(), c.controller.Tail(60))
	default:
	}
}

// fleetExample applies the example as it stands, but for its Gateway and its Prometheus, which are not there: nothing is scaled, no weight
// changes, and the conditions say why.
func fleetExample(t *testing.T, s *fleetScene) {
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "examples", "inference", "fleet.yaml"))
	must.OK(t, err)
	s.plane.ApplyForTest(t.Context(), t, strings.ReplaceAll(string(raw), "\nmetadata:\n", "\nmetadata:\n  namespace: "+s.namespace+"\n"))
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Controlled")
	s.awaitReason(t, "bert", v1alpha1.ConditionMeasured, "PrometheusUnreachable")
	if replicas, weights := s.sizes(t, "bert"); replicas != [2]int64{1, 0} || weights != [2]int64{1000, 0} {
		t.Errorf("without metrics the sizes are %v and the weights %v", replicas, weights)
	}
}

// fleetGrowsAndShrinks: more requests bring more replicas, and these get their part of the requests once they are ready. Fewer requests take
// the part away first, and then the replicas.
func fleetGrowsAndShrinks(t *testing.T, s *fleetScene) {
	s.arrives(20)
	s.create(t, "bert", twoVariants())
	s.awaitReason(t, "bert", v1alpha1.ConditionScaled, "Scaled")
	s.arrives(60)
	s.awaitSizes(t, "bert", "more replicas share the requests", func(replicas, weights [2]int64) bool {
		served := float64(replicas[0])*45 + float64(replicas[1])*5
		return served > 60 && weights[0]+weights[1] == 1000 && (replicas[1] == 0) == (weights[1] == 0)
	})
	s.arrives(20)
	s.awaitSizes(t, "bert", "one a100 is left", func(replicas, weights [2]int64) bool {
		return replicas == [2]int64{1, 0} && weights == [2]int64{1000, 0}
	})
	s.poll(t, "events tell of both", func() (bool, string) { // the controller sends events beside its writes
		events, err := s.admin.EventsV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
		must.OK(t, err)
		reasons := map[string]bool{}
		for i := range events.Items {
			reasons[events.Items[i].Reason] = true
		}
		for _, e := range s.rejected(t, s.namespace) {
			reasons[e.reason] = true
		}
		return reasons["Grows"] && reasons["Shrinks"], fmt.Sprint(reasons)
	})
}

// fleetKilled: the controller is killed when it has scaled and not yet written the weights, and when it has written a lower weight and not yet
// taken the replicas away. Another process goes on from what the objects say.
func fleetKilled(t *testing.T, s *fleetScene) {
	variants := twoVariants()
	variants[0].most = 1 // so that the slow variant serves what it does not
	s.arrives(60)
	s.create(t, "bert", variants)
	s.awaitSizes(t, "bert", "t4 is scaled", func(replicas, _ [2]int64) bool { return replicas[1] > 0 })
	s.controller.Stop(0)
	scaled, _ := s.sizes(t, "bert")
	s.restart(t)
	s.awaitSizes(t, "bert", "t4 gets requests", func(replicas, weights [2]int64) bool {
		return replicas[1] >= scaled[1] && weights[1] > 0 && weights[0]+weights[1] == 1000
	})

	s.arrives(20)
	s.awaitSizes(t, "bert", "the route gives t4 less", func(_, weights [2]int64) bool { return weights[1] == 0 })
	s.controller.Stop(0)
	s.restart(t)
	s.awaitSizes(t, "bert", "t4 is gone", func(replicas, weights [2]int64) bool {
		return replicas == [2]int64{1, 0} && weights == [2]int64{1000, 0}
	})
}

// foreign is the highest weight that the other writer of the route sets.
const foreign = 6

// fleetConflicts: somebody changes the route all the time. Nothing that they write is lost, and the controller leaves the weights alone. They are right once the
// fleet changes.
func fleetConflicts(t *testing.T, s *fleetScene) {
	variants := twoVariants()
	variants[0].most = 1
	s.arrives(20)
	s.create(t, "bert", variants)
	s.awaitReason(t, "bert", v1alpha1.ConditionScaled, "Scaled")
	s.arrives(60)
	last := ""
	s.poll(t, "the controller leaves the weights alone", func() (bool, string) {
		last = fmt.Sprintf("%dms", 1000+time.Now().UnixMilli()%1000)
		s.patchRoute(t, "bert", types.JSONPatchType, fmt.Sprintf(
			`[{"op": "add", "path": "/spec/rules/0/timeouts", "value": {"request": %q}}, {"op": "add", "path": "/spec/rules/0/backendRefs/1/weight", "value": %d}]`,
			last, time.Now().UnixMilli()%(foreign+1)))
		c := meta.FindStatusCondition(s.fleet(t, "bert").Status.Conditions, v1alpha1.ConditionRouted)
		return c != nil && c.Reason == "AnotherWriter", fmt.Sprintf("%+v", c)
	})
	s.patchFleet(t, `[{"op": "replace", "path": "/spec/variants/1/maxReplicas", "value": 11}]`)
	s.awaitSizes(t, "bert", "the weights are those of the controller", func(replicas, weights [2]int64) bool {
		return replicas[1] > 0 && weights[0]+weights[1] == 1000 && weights[1] > 50
	})
	o, err := s.objects.Resource(httpRoutes).Namespace(s.namespace).Get(t.Context(), "bert", metav1.GetOptions{})
	must.OK(t, err)
	if raw, err := json.Marshal(o.Object["spec"]); err != nil || !strings.Contains(string(raw), fmt.Sprintf(`"timeouts":{"request":%q}`, last)) {
		t.Errorf("what another writer wrote is lost: %s, %v", raw, err)
	}
}

// fleetOwners: the controller leaves alone what others change while they do.
func fleetOwners(t *testing.T, s *fleetScene) {
	s.arrives(20)
	s.create(t, "bert", twoVariants())
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Controlled")

	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "bert"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "bert-t4"}, MaxReplicas: 3,
	}}
	scalers := s.admin.AutoscalingV2().HorizontalPodAutoscalers(s.namespace)
	if _, err := scalers.Create(t.Context(), scaler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "AnotherAutoscaler")
	s.arrives(80)
	s.awaitSizes(t, "bert", "only a100 grows", func(replicas, _ [2]int64) bool { return replicas[0] > 1 })
	if replicas, _ := s.sizes(t, "bert"); replicas[1] != 0 {
		t.Errorf("t4 has %d replicas, and an autoscaler owns it", replicas[1])
	}
	must.OK(t, scalers.Delete(t.Context(), "bert", metav1.DeleteOptions{}))
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Controlled")

	s.patchRoute(t, "bert", types.JSONPatchType, `[{"op": "add", "path": "/spec/rules/0/backendRefs/-", "value": {"name": "other", "port": 80, "weight": 5}}]`)
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "ForeignBackends")
	_, before := s.sizes(t, "bert")
	s.arrives(160)
	time.Sleep(3 * time.Second) // nothing may happen in three passes, so there is nothing to wait for
	if replicas, weights := s.sizes(t, "bert"); weights != before {
		t.Errorf("the weights of a rule with another backend changed from %v to %v; replicas are %v", before, weights, replicas)
	}
	s.patchRoute(t, "bert", types.JSONPatchType, `[{"op": "remove", "path": "/spec/rules/0/backendRefs/2"}]`)
	s.patchRoute(t, "bert", types.MergePatchType, `{"metadata": {"ownerReferences": [{"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "bert", "uid": "1", "controller": true}]}}`)
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "RouteOwned")
	s.patchRoute(t, "bert", types.MergePatchType, `{"metadata": {"ownerReferences": null}}`)
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Controlled")
	s.awaitSizes(t, "bert", "the fleet follows again", func(replicas, weights [2]int64) bool {
		return float64(replicas[0])*45+float64(replicas[1])*5 > 160 && weights[0]+weights[1] == 1000
	})
}

// fleetTaken: the older fleet has the target and the route, and the other one has them when it is gone.
func fleetTaken(t *testing.T, s *fleetScene) {
	s.arrives(20)
	s.create(t, "bert", twoVariants())
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Controlled")
	time.Sleep(time.Second) // the API server counts ages in seconds
	s.createFleet(t, "another", "bert", twoVariants(), s.answers())
	s.awaitReason(t, "another", v1alpha1.ConditionFleetReady, "RouteTaken")
	s.awaitReason(t, "another", v1alpha1.ConditionScaled, "ScaleTargetTaken")
	must.OK(t, s.objects.Resource(fleets).Namespace(s.namespace).Delete(t.Context(), "bert", metav1.DeleteOptions{}))
	s.awaitReason(t, "another", v1alpha1.ConditionFleetReady, "Controlled")
	if replicas, weights := s.sizes(t, "bert"); replicas != [2]int64{1, 0} || weights != [2]int64{1000, 0} {
		t.Errorf("the sizes are %v and the weights %v", replicas, weights)
	}
}

// fleetRefused: the API server refuses what is not legal, and names the field.
func fleetRefused(t *testing.T, s *fleetScene) {
	s.create(t, "bert", twoVariants())
	for patch, want := range map[string]string{
		`[{"op": "replace", "path": "/spec/promise/latency", "value": "0s"}]`:                         "latency must be a duration from 1us to 24h",
		`[{"op": "replace", "path": "/spec/variants/1/service/name", "value": "bert-a100"}]`:          "two variants name one Service",
		`[{"op": "replace", "path": "/spec/variants/1/scaleTargetRef/name", "value": "bert-a100"}]`:   "two variants name one scale target",
		`[{"op": "replace", "path": "/spec/variants/0/minReplicas", "value": 11}]`:                    "minReplicas must be at most maxReplicas",
		`[{"op": "replace", "path": "/spec/variants/0/replica/rate", "value": "0"}]`:                  "rate must be a decimal above 0",
		`[{"op": "replace", "path": "/spec/metrics/queries", "value": {"latency": "1"}}]`:             "without a preset, queries must have rate or variantRate",
		`[{"op": "replace", "path": "/spec/metrics/prometheusURL", "value": "http://u:p@host:9090"}]`: "prometheusURL must be http://",
		`[{"op": "add", "path": "/spec/promise/of", "value": "FirstToken"}]`:                          "each variant needs replica.firstToken",
		`[{"op": "add", "path": "/spec/promise/of", "value": "Token"}]`:                               `"Answer", "FirstToken"`,
		`[{"op": "add", "path": "/spec/promise/perToken", "value": "50ms"}]`:                          "each variant needs replica.inFlight",
		`[{"op": "add", "path": "/spec/promise/perToken", "value": "2h"}]`:                            "perToken must be a duration from 1us to 1h",
		`[{"op": "add", "path": "/spec/variants/0/replica/firstToken", "value": "1h"}]`:               "firstToken must be at most time",
		`[{"op": "add", "path": "/spec/variants/0/replica/inFlight", "value": 5000}]`:                 "spec.variants[0].replica.inFlight",
		`[{"op": "replace", "path": "/spec/objective", "value": "best"}]`:                             `"proportional", "mean-optimal", "p99-optimal"`,
	} {
		_, err := s.objects.Resource(fleets).Namespace(s.namespace).Patch(t.Context(), "bert", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, and should say %q", patch, err, want)
		}
	}
}
