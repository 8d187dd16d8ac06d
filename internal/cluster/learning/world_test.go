package learning

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// clock is a clock that tests move.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) time() time.Time { return c.now }

// model returns a model as shipped.
func model(tb testing.TB, name string) interference.Model {
	tb.Helper()
	m, err := interference.ByName(name)
	must.OK(tb, err)
	return m
}

// job is a workload of the world with what nobody can see of it.
type job struct {
	name   string
	hidden fakegpu.Hidden
	// rate alone on a whole device.
	rate float64
	// lie is what it multiplies its report with beside another, nil for one that tells the truth.
	lie func(beside *job) float64
	cap vgpu.MilliGPU
}

// running is a pod of a job with what its node's agent knows of it: averages as the agent keeps them.
type running struct {
	job      *job
	pod      *v1.Pod
	sm, rate float64
	// steps done since the last report, as a part of those that it does alone.
	steps float64
}

// gpu is a device of the world's one node.
type gpu struct {
	running       []*running
	sm, bandwidth float64
	told          v1alpha1.GPUDevice
	ticks         int
	changed       bool
}

// world is a cluster of one node: devices that interfere as fakegpu.Interference says, and an agent that publishes what
// Tandem's agent would, in the same way: sampled every 10 s, counters of work done read every 30 s, both smoothed over a minute and begun
// anew with each tenant group, published every minute at most and only if something moved by 5 points, or a rate by 5 %.
type world struct {
	tb      testing.TB
	clock   *clock
	learner *Learner
	truth   fakegpu.Interference
	gpus    []*gpu
	step    uint64
	pods    int
	// foreign is memory that programs of no pod hold on each device.
	foreign int64
	// published is when the GPUNode was written last.
	published time.Time
}

const (
	tick   = 10 * time.Second
	memory = 40 << 30
	a100   = "NVIDIA-A100-SXM4-40GB"
)

func newWorld(tb testing.TB, devices int, o Options) *world {
	w := &world{tb: tb, clock: newClock()}
	o.Clock = w.clock.time
	if o.Model.Name == "" {
		o.Model = model(tb, "default")
	}
	if o.MaxProfiles == 0 {
		o.MaxProfiles = 1000
	}
	w.learner = New(o)
	for range devices {
		w.gpus = append(w.gpus, &gpu{changed: true})
	}
	return w
}

func deviceID(i int) string { return fmt.Sprintf("GPU-%08d", i) }

// podOf returns a pod of a Deployment with a share of a device.
func podOf(tb testing.TB, j *job, number int, device string) *v1.Pod {
	tb.Helper()
	namespace := "team-" + j.name[:1]
	uid := types.UID(fmt.Sprintf("%s-%06d", j.name, number))
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: string(uid), UID: uid,
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "1"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: j.name + "-1", Controller: new(true)},
			},
		},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{
			Name: "main", Image: "reg/" + j.name,
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("2")}},
		}}},
	}
	if device == "" {
		return p
	}
	annotation, err := kube.EncodeAssignment(vgpu.Assignment{
		UID: vgpu.UID(uid), Pod: namespace + "/" + p.Name, Node: "n1",
		Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(device)},
			Share: vgpu.Share{Devices: 1, Slots: 2, Memory: 1 << 30, MemoryLimit: 1 << 33, ComputeLimit: j.cap},
		}},
	})
	must.OK(tb, err)
	p.Annotations = map[string]string{v1alpha1.AnnotationAssignment: annotation}
	return p
}

// place starts pods of jobs on a device, in place of those that are there.
func (w *world) place(device int, jobs ...*job) {
	g := w.gpus[device]
	for _, r := range g.running {
		w.learner.PodGone(r.pod.UID)
	}
	g.running = nil
	for _, j := range jobs {
		w.pods++
		p := podOf(w.tb, j, w.pods, deviceID(device))
		w.learner.Pod(p)
		g.running = append(g.running, &running{job: j, pod: p})
	}
	g.ticks, g.changed = 0, true
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for ; d > 0; d -= tick {
		w.clock.now = w.clock.now.Add(tick)
		w.step++
		news := false
		for i, g := range w.gpus {
			w.sample(g)
			g.ticks++
			news = w.isNews(i, g) || news
		}
		if news && w.clock.now.Sub(w.published) >= time.Minute {
			w.publish()
		}
		w.learner.step(w.clock.now)
	}
}

// sample follows what the tenants of a device do now.
func (w *world) sample(g *gpu) {
	hidden := make([]fakegpu.Hidden, len(g.running))
	for i, r := range g.running {
		hidden[i] = r.job.hidden
		hidden[i].ID = uint64(len(r.pod.UID))<<32 + uint64(i) + hashOf(string(r.pod.UID))
		hidden[i].Cap = float64(r.job.cap) / 1000
	}
	now := w.mean(hidden)
	weight := 1 - math.Exp(-tick.Seconds()/60)
	if g.ticks == 0 {
		weight = 1
	}
	g.bandwidth += weight * (now.DeviceBandwidth - g.bandwidth)
	g.sm += weight * (now.DeviceSM - g.sm)
	for i, r := range g.running {
		r.sm += weight * (now.SM[i] - r.sm)
		r.steps += now.Speeds[i] / 3
		if g.ticks%3 != 2 || r.job.rate == 0 {
			continue
		}
		reported := r.job.rate * r.steps
		r.steps = 0
		for _, other := range g.running {
			if other != r && r.job.lie != nil {
				reported *= r.job.lie(other.job)
			}
		}
		if g.ticks == 2 {
			r.rate = reported
		} else {
			r.rate += (1 - math.Exp(-3*tick.Seconds()/60)) * (reported - r.rate)
		}
	}
}

// mean is what the tenants of a device do in a tick: the fakes draw their noise once a second.
func (w *world) mean(hidden []fakegpu.Hidden) fakegpu.CoRun {
	const seconds = uint64(tick / time.Second)
	sum := fakegpu.CoRun{Speeds: make([]float64, len(hidden)), SM: make([]float64, len(hidden))}
	var now fakegpu.CoRun
	for second := range seconds {
		w.truth.Run(hidden, w.step*seconds+second, &now)
		sum.DeviceSM += now.DeviceSM / float64(seconds)
		sum.DeviceBandwidth += now.DeviceBandwidth / float64(seconds)
		for i := range hidden {
			sum.Speeds[i] += now.Speeds[i] / float64(seconds)
			sum.SM[i] += now.SM[i] / float64(seconds)
		}
	}
	return sum
}

func hashOf(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func percentOf(v float64) int32 { return int32(math.Round(100 * v)) }

// current is the device as it would be published.
func (w *world) current(i int, g *gpu) v1alpha1.GPUDevice {
	d := v1alpha1.GPUDevice{
		ID: deviceID(i), Model: a100, Memory: *resource.NewQuantity(memory, resource.BinarySI), Slots: 10,
		Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		Usage: &v1alpha1.GPUUsage{
			SMUtilizationPercent: percentOf(g.sm), MemoryBandwidthPercent: percentOf(g.bandwidth),
			MemoryUsed: *resource.NewQuantity(int64(len(g.running))<<30+w.foreign, resource.BinarySI),
		},
	}
	for _, r := range g.running {
		t := v1alpha1.GPUTenant{
			UID: string(r.pod.UID), SMUtilizationPercent: new(percentOf(r.sm)), Measured: true,
			MemoryUsed: resource.NewQuantity(1<<30, resource.BinarySI),
		}
		if r.rate > 0 {
			t.Rate = resource.NewScaledQuantity(int64(math.Round(r.rate*1e6)), resource.Micro)
		}
		d.Tenants = append(d.Tenants, t)
	}
	slices.SortFunc(d.Tenants, func(a, b v1alpha1.GPUTenant) int { return cmpString(a.UID, b.UID) })
	return d
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// isNews reports whether a device does otherwise than was published.
func (w *world) isNews(i int, g *gpu) bool {
	if g.changed {
		return true
	}
	now, far := w.current(i, g), func(a, b int32) bool { return a-b >= 5 || b-a >= 5 }
	if far(now.Usage.MemoryBandwidthPercent, g.told.Usage.MemoryBandwidthPercent) || far(now.Usage.SMUtilizationPercent, g.told.Usage.SMUtilizationPercent) {
		return true
	}
	return !slices.EqualFunc(now.Tenants, g.told.Tenants, func(a, b v1alpha1.GPUTenant) bool {
		if far(*a.SMUtilizationPercent, *b.SMUtilizationPercent) || (a.Rate == nil) != (b.Rate == nil) {
			return false
		}
		if a.Rate == nil {
			return true
		}
		x, y := a.Rate.AsApproximateFloat64(), b.Rate.AsApproximateFloat64()
		return math.Abs(x-y)*20 < max(x, y)
	})
}

// publish writes the GPUNode.
func (w *world) publish() {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	for i, d := range w.gpus {
		d.told, d.changed = w.current(i, d), false
		g.Status.Devices = append(g.Status.Devices, d.told)
	}
	w.published = w.clock.now
	w.learner.GPUNode(g)
}

// number is that of a job's workload.
func (w *world) number(j *job) interference.Workload {
	return w.learner.Snapshot().Number(podOf(w.tb, j, 0, ""))
}

// predict returns the slowdowns of jobs side by side on whole devices, as the scheduler would expect them.
func (w *world) predict(jobs ...*job) []float64 {
	s := w.learner.Snapshot()
	var on []interference.Tenant
	for _, j := range jobs {
		on = append(on, s.Tenant(w.number(j), a100, j.cap))
	}
	m := w.learner.options.Model
	var out []float64
	for _, p := range m.Predict(on, nil) {
		out = append(out, p.Slowdown())
	}
	return out
}

// draw returns jobs with hidden traits: sensitivities and pressures from 0.3 to 1.2, so that two beside each other take
// between 1.09 and 2.4 times as long.
func draw(random *rand.Rand, n int) []*job {
	logUniform := func(from, to float64) float64 { return from * math.Pow(to/from, random.Float64()) }
	jobs := make([]*job, n)
	for i := range jobs {
		jobs[i] = &job{
			name: fmt.Sprintf("%c-job-%d", 'a'+i%4, i), cap: vgpu.WholeGPU, rate: logUniform(.01, 1e5),
			hidden: fakegpu.Hidden{
				SM: .3 + .7*random.Float64(), Bandwidth: .1 + .7*random.Float64(),
				Sensitivity: logUniform(.3, 1.2), Pressure: logUniform(.3, 1.2),
			},
		}
	}
	return jobs
}
