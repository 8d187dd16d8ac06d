package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// These say how many times as fast the controller's clock runs: lending is a matter of many minutes. A job borrows for some seven of them, and has
// two to give devices back, so half a minute of the real clock is enough for that at the usual speed, but on a starved machine.
const (
	usualSpeed   = 4
	starvedSpeed = 2
)

// lendingPlay is a test of elastic jobs, and of a fleet where it makes one, that share four GPUs.
type lendingPlay struct {
	name string
	run  func(*testing.T, *lendingCluster)
}

func lendingPlays() []lendingPlay {
	return []lendingPlay{
		{inTime, func(t *testing.T, c *lendingCluster) {
			if all := givesBackInTime(t, c); len(all) > 0 {
				t.Errorf("pods were preempted, or the job did not borrow: %q", all)
			}
		}},
		{jumps, jumpPreempts},
		{resting, equalJobsRest},
		{"a quota refuses a replica", quotaRefuses},
	}
}

const (
	inTime = "a job gives back in time what a fleet lends it"
	jumps  = "a load that jumps preempts"
)

// playLendingInBubble plays a test on a cluster in a bubble, where no machine is too slow.
func playLendingInBubble(t *testing.T, run func(*testing.T, *lendingCluster)) {
	t.Helper()
	c := &lendingCluster{fleetScene: &fleetScene{fleetCluster: &fleetCluster{prometheus: "http://prometheus.example"}}}
	c.gangCluster = newBubble(t, gangModes()[0], http.HandlerFunc(c.answerRate))
	t.Cleanup(func() { c.scheduler.Stop(0) })
	c.begin(t, []int{gpusPerNode})
	t.Cleanup(func() { c.controller.Stop(0) })
	c.start(t)
	c.playIn(t, func(t *testing.T, _ *gangCluster) { run(t, c) })
}

// TestLending runs scheduler and controller as they are built, but for the controller's clock, under the rights of their accounts.
func TestLending(t *testing.T) {
	if !everything() {
		t.Skip("takes minutes of the real clock for decisions that TestPlays sees in a bubble: make nightly runs it (TANDEM_PLAYS=all)")
	}
	t.Parallel()
	c, late := startLendingCluster(t, usualSpeed), false
	c.gangCluster.play(t, inTime, func(t *testing.T, _ *gangCluster) {
		if all := givesBackInTime(t, c); len(all) > 0 {
			late = true
			t.Logf("Tandem or this machine is too slow; a slower clock tells which it is: %q", all)
		}
	})
	c.gangCluster.play(t, jumps, func(t *testing.T, _ *gangCluster) { jumpPreempts(t, c) })
	c.checkController(t)
	if late {
		c := startLendingCluster(t, starvedSpeed)
		c.gangCluster.play(t, inTime+", on a slower clock", func(t *testing.T, _ *gangCluster) {
			if all := givesBackInTime(t, c); len(all) > 0 {
				t.Errorf("pods were preempted, or the job did not borrow: %q", all)
			}
		})
		c.checkController(t)
	}
}

// checkController checks that the controller still runs.
func (c *lendingCluster) checkController(t *testing.T) {
	t.Helper()
	select {
	case <-c.controller.Done():
		t.Errorf("the controller ended: %v\n%s", c.controller.Err(), c.controller.Tail(60))
	default:
	}
}

// lendingCluster is a cluster with a node of four GPUs, whose Prometheus and controller of Deployments is the test.
type lendingCluster struct {
	*fleetScene
	mu sync.Mutex
	// rate arrives since a time of the controller's clock, and more each minute.
	rate, more float64
	since      time.Time
	// admits is how many replicas a ResourceQuota lets each Deployment have, 0 for no quota.
	admits int
}

func startLendingCluster(t *testing.T, speed int) *lendingCluster {
	t.Helper()
	g := startCluster(t, gangModes()[0], schedulerProgram(t), gpusPerNode)
	c := &lendingCluster{fleetScene: &fleetScene{fleetCluster: &fleetCluster{gangCluster: g, began: time.Now(), speed: speed}}}
	c.createClasses(t)
	c.applySource(t, "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")
	server := httptest.NewServer(http.HandlerFunc(c.answerRate))
	t.Cleanup(server.Close)
	c.prometheus = server.URL
	c.start(t)
	return c
}

// start starts what makes pods run, and the controller.
func (c *lendingCluster) start(t *testing.T) {
	t.Helper()
	c.startKubelets(t)
	c.startDeployments(t)
	c.startWithClock(t, "--features=elastic,inference", "--elastic-interval=1s", "--elastic-notice=5s", "--elastic-max-moves=100",
		"--elastic-admit-within=24h", "--inference-interval=1s")
}

// arrives has so many requests a second arrive from now on, and more each minute.
func (c *lendingCluster) arrives(rate, more float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rate, c.more, c.since = rate, more, c.quick()
}

func (c *lendingCluster) answerRate(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	now := c.quick()
	rate := c.rate + c.more*now.Sub(c.since).Minutes()
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status": "success", "data": {"resultType": "scalar", "result": [%d, "%g"]}}`, now.Unix(), rate)
}

// startDeployments does what Kubernetes does with Deployments: each has as many pods as it has replicas, and those that run are the endpoints of the
// Service of its name.
func (c *lendingCluster) startDeployments(t *testing.T) {
	t.Helper()
	eachDeployment(t, c.admin, c.host)
}

// host makes the pods, the endpoints and the status of a Deployment. An error is not told: the next round tries again.
func (c *lendingCluster) host(ctx context.Context, d *appsv1.Deployment) {
	c.mu.Lock()
	made := *d.Spec.Replicas
	if c.admits > 0 {
		made = min(made, int32(c.admits))
	}
	c.mu.Unlock()
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: made}
	if made < *d.Spec.Replicas {
		status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: v1.ConditionTrue, Reason: "FailedCreate",
			Message: `pods "bert" is forbidden: exceeded quota: replicas, requested: requests.tandem-gpu.io/vgpu=10, used: requests.tandem-gpu.io/vgpu=10, limited: requests.tandem-gpu.io/vgpu=10`}}
	}
	if s := d.Status; s.ObservedGeneration != d.Generation || s.Replicas != made || len(s.Conditions) != len(status.Conditions) {
		d.Status = status
		_, _ = c.admin.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	}
	serves := make([]bool, made)
	for i := range serves {
		pod, err := c.admin.CoreV1().Pods(d.Namespace).Get(ctx, fmt.Sprintf("%s-%d", d.Name, i), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", d.Name, i), Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
			_, _ = c.admin.CoreV1().Pods(d.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		} else {
			serves[i] = err == nil && pod.Status.Phase == v1.PodRunning
		}
	}
	publish(ctx, c.admin, d, serves)
}

// beginFleet makes a fleet of one or two replicas, with a whole GPU each and a priority above that of jobs, and waits until one serves. A replica serves 45
// requests a second within the promise.
func (c *lendingCluster) beginFleet(t *testing.T) {
	t.Helper()
	c.namespace = c.gangCluster.namespace
	variants := []variant{{name: "a100", weight: 1000}}
	pod := vgpuPod("", 10)
	pod.Spec.PriorityClassName, pod.Spec.RestartPolicy = high, v1.RestartPolicyAlways
	labels := map[string]string{"app": "bert-a100"}
	if _, err := c.admin.AppsV1().Deployments(c.gangCluster.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "bert-a100"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CoreV1().Services(c.gangCluster.namespace).Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "bert-a100"}, Spec: v1.ServiceSpec{Selector: labels, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.createRoute(t, "bert", variants)
	c.createObject(t, fleets, "InferenceFleet", "bert", map[string]any{
		"promise": map[string]any{"latency": "1s"}, "route": map[string]any{"httpRoute": map[string]any{"name": "bert"}},
		"metrics": map[string]any{"prometheusURL": c.prometheus, "queries": map[string]any{"rate": "rate"}},
		"variants": []any{map[string]any{
			"name": "a100", "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "bert-a100"},
			"service": map[string]any{"name": "bert-a100", "port": int64(80)}, "gpuModel": "A100", "slots": int64(10),
			"cost": int64(10), "minReplicas": int64(1), "maxReplicas": int64(2), "loadTime": "60s", "replica": map[string]any{"rate": "50", "time": "20ms"},
		}},
	})
	t.Cleanup(func() { c.endFleet(t) })
	c.awaitReplicas(t, 1)
}

// endFleet removes the fleet before its pods are removed.
func (c *lendingCluster) endFleet(t *testing.T) {
	t.Helper()
	if err := c.objects.Resource(fleets).Namespace(c.gangCluster.namespace).Delete(life(t), "bert", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.admin.AppsV1().Deployments(c.gangCluster.namespace).Delete(life(t), "bert-a100", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// awaitReplicas waits until so many replicas of the fleet serve.
func (c *lendingCluster) awaitReplicas(t *testing.T, count int32) {
	t.Helper()
	c.poll(t, fmt.Sprintf("%d replicas serve", count), func() (bool, string) {
		return c.serves(t, count), fmt.Sprintf("%+v; pods %s", c.fleet(t, "bert").Status, c.phases(t, "train"))
	})
}

// serves tells whether so many replicas of the fleet serve, and no others should.
func (c *lendingCluster) serves(t *testing.T, count int32) bool {
	t.Helper()
	s := c.fleet(t, "bert").Status
	return len(s.Variants) == 1 && s.Variants[0].Replicas == count && s.Variants[0].Ready == count
}

// inTime waits until something is so, or until both replicas of the fleet serve: then it is too late for it.
func (c *lendingCluster) inTime(t *testing.T, what string, is func() bool) (late []string) {
	t.Helper()
	c.poll(t, what+", or the fleet has what it needs", func() (bool, string) {
		late = nil
		if is() {
			return true, ""
		}
		late = []string{"too late: " + what}
		return c.serves(t, 2), fmt.Sprintf("%+v; pods %s", c.fleet(t, "bert").Status, c.phases(t, "train"))
	})
	return late
}

// saysInTime waits until an event or a condition has the text, or until both replicas serve: then the text comes too late.
func (c *lendingCluster) saysInTime(t *testing.T, text string) (late []string) {
	t.Helper()
	return c.inTime(t, "somebody says "+text, func() bool { return c.says(t, text) })
}

// preempted returns which members of the job the scheduler preempted.
func (c *lendingCluster) preempted(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(c.notes(t), func(note string) bool { return !strings.Contains(note, "Preempted by") })
}

// givesBackInTime: the fleet will need another GPU in some minutes. Until then the job has it, and it gives it back before the fleet asks for it. It
// returns the pods that were preempted and what came too late for the clock: none, where nothing is late.
func givesBackInTime(t *testing.T, c *lendingCluster) (late []string) {
	t.Helper()
	c.arrives(36, 0)
	c.beginFleet(t)
	c.submit(t, patientPod("filler", "", "", 10))
	c.startJob(t, c.elasticJob("train", 10, 3))
	c.awaitWorkers(t, "train", 2) // all four GPUs have an owner now
	c.awaitReason(t, "bert", v1alpha1.ConditionPrioritized, "Prioritized")

	c.arrives(36, .5)
	late = c.inTime(t, "the fleet says that it will need more", func() bool {
		s := c.fleet(t, "bert").Status
		return len(s.Variants) == 1 && len(s.Variants[0].Later) > 0
	})
	c.deletePod(t, "filler")
	late = append(late, c.saysInTime(t, "grows from 2 to 3 members: GPUs are idle until inference needs them")...)
	late = append(late, c.saysInTime(t, "shrinks from 3 to 2 members: inference will need the GPUs")...)
	c.awaitReplicas(t, 2)
	c.awaitWorkers(t, "train", 2)
	late = append(late, c.preempted(t)...)
	c.checkJob(t, "train")
	c.checkRunning(t)
	return late
}

// jumpPreempts: the load jumps, and nothing told that before. The scheduler takes a member for the new replica. On a starved machine the controller may
// be the first to give the member up for it.
func jumpPreempts(t *testing.T, c *lendingCluster) {
	c.arrives(20, 0)
	c.beginFleet(t)
	c.startJob(t, c.elasticJob("train", 10, 3))
	c.awaitWorkers(t, "train", 3)
	c.arrives(80, 0)
	c.awaitReplicas(t, 2)
	c.awaitWorkers(t, "train", 2)
	replica := "pod " + c.gangCluster.namespace + "/bert-a100-1"
	c.poll(t, "a member leaves for "+replica, func() (bool, string) {
		return c.says(t, "Preempted by "+replica) || c.says(t, "shrinks from 3 to 2 members: "+replica+" waits for a place"), ""
	})
	c.checkJob(t, "train")
	c.checkRunning(t)
}

// quotaRefuses: the fleet needs another replica, and a quota of its namespace does not admit that. The fleet says so, and the job has the GPU that is idle. When the
// quota is raised, Kubernetes makes the replica, and a member leaves for it.
func quotaRefuses(t *testing.T, c *lendingCluster) {
	c.admit(1)
	c.arrives(20, 0)
	c.beginFleet(t)
	c.submit(t, patientPod("filler", "", "", 10))
	c.startJob(t, c.elasticJob("train", 10, 3))
	c.awaitWorkers(t, "train", 2)
	c.arrives(80, 0)
	c.awaitReason(t, "bert", v1alpha1.ConditionScaled, "QuotaExceeded")
	c.deletePod(t, "filler")
	c.awaitWorkers(t, "train", 3)
	if s := c.fleet(t, "bert").Status; s.Reason != "AtMost" || !strings.Contains(s.Message, "ResourceQuota replicas refuses pods of Deployment bert-a100 beyond 1 (") {
		t.Errorf("%+v", s)
	}
	if d, err := c.admin.AppsV1().Deployments(c.gangCluster.namespace).Get(t.Context(), "bert-a100", metav1.GetOptions{}); err != nil || *d.Spec.Replicas != 2 {
		t.Errorf("the Deployment asks for %+v, %v", d.Spec.Replicas, err)
	}
	c.admit(0)
	c.awaitReplicas(t, 2)
	c.awaitWorkers(t, "train", 2)
	c.checkJob(t, "train")
	c.checkRunning(t)
}

// admit sets how many replicas a quota admits, 0 for any number.
func (c *lendingCluster) admit(replicas int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admits = replicas
}
