package gpushare

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// rule is the basis of choices for a time: the policy with the mix of usual requests and with the knowledge of
// workloads. A rule is immutable; scores of different rules do not compare.
type rule struct {
	placement.Policy
	mix *fragmentation.Mix
	// typical is the part of the mix that the metric of fragmentation is about.
	typical *fragmentation.Mix
	// know is the knowledge of workloads at the time of the rule.
	know *learning.Snapshot
	// among is the policy's knowledge of neighbours, nil where no pod promised anything and there is no knowledge.
	// scarce is as in it.
	among  *placement.Neighbours
	scarce bool
	// made is when, zero for the first.
	made time.Time
}

// typicalPercent is the part of all pods whose kinds count in the metric of fragmentation. The metric uses CPU and not
// memory, as published (Weng et al., USENIX ATC 2023). The others are too rare to keep room for.
const typicalPercent = 95

// Pauses between rules. Every new rule makes the plugin score the nodes anew: some 20 ms at 20,000 nodes that are all
// unlike (BenchmarkScale).
const (
	// rulePause is the longest time that a learned value stays out of the rule while the scheduler places pods.
	rulePause = fragmentation.Pause * time.Second
	// newsPause is that for a declaration, and ownPause for the pods of the profile that was declared: one that is created
	// right after it is placed by it. Tenants declare what they like as often as they like; with shorter pauses they could
	// keep the scheduler busy.
	newsPause = 5 * time.Second
	ownPause  = time.Second
)

// Why a rule replaced the one before: the first that holds.
const (
	causeMix      = "mix"
	causeProfiles = "profiles"
	causeSharing  = "sharing"
	causeScarcity = "scarcity"
)

func (s *state) ruling() *rule { return s.rule.Load() }

// crowding is how pods share devices by the arguments.
type crowding struct {
	model   interference.Model
	weights placement.Weights
	// always: pods of known workloads share devices, whether or not GPUs are scarce.
	always bool
}

// givenCrowding returns what valid arguments say.
func givenCrowding(args *config.GPUShareArgs) (crowding, error) {
	model, err := interference.ByName(args.Interference.Model)
	return crowding{
		model: model,
		weights: placement.Weights{
			Fragmentation: int64(args.Weights.Fragmentation), Interference: int64(args.Weights.Interference),
			Heterogeneity: int64(args.Weights.Heterogeneity),
		},
		always: args.Sharing == config.SharingAlways || args.Interference.Model == harmless,
	}, err
}

// harmless is the model that predicts no harm: nothing is gained by idle devices then, and no promise breaks.
const harmless = "none"

// matters reports whether neighbours make a difference. They do with knowledge of any workload, with a max-slowdown of
// any pod, or with a pod that prefers one model. Else scores are those of the policy alone, and nodes are alike
// whichever pods run there.
func (c *crowding) matters(know *learning.Snapshot, l load, r *vgpu.Request) bool {
	if len(r.Preferences) > 0 {
		return true
	}
	return c.model.Name != harmless && (!know.Empty() || l.promises > 0 || r.MaxSlowdown > 0)
}

// current returns what the cycle of a pod goes by of workloads: what the rule does, or what is known now where it is time
// for a new rule.
func (p *Plugin) current(pod *v1.Pod) *learning.Snapshot {
	rule := p.state.ruling()
	if age := p.now().Sub(rule.made); age < rulePause && rule.mix == p.usual() && !p.news.due(pod, age) {
		return rule.know
	}
	p.news.clear() // before the look, which shows the news that came before it
	return p.state.learner.Snapshot()
}

// outdated reports whether the learner has news for the rule.
func (p *Plugin) outdated() bool {
	rule := p.state.ruling()
	return rule.among != nil && rule.know.Version() != p.state.learner.Snapshot().Version()
}

// adopt makes what further scheduling cycles go by, where anything changed that matters for a pod.
func (p *Plugin) adopt(logger klog.Logger, know *learning.Snapshot, l load, r *vgpu.Request) {
	mix, now := p.usual(), p.now()
	before := p.state.ruling()
	matters := p.crowding.matters(know, l, r)
	if before != nil && before.among != nil && now.Sub(before.made) < rulePause {
		matters = true // a pod that comes and goes is not worth two new rules
	}
	scarce := p.scarcity.look(now, l, p.pending.waits()) && matters
	cause := changed(before, mix, know, matters, scarce)
	if cause == "" {
		return
	}
	next := &rule{
		Policy: p.policy.With(mix, p.seed), mix: mix, typical: mix.WithoutMemory().Typical(typicalPercent),
		know: know, scarce: scarce,
	}
	if before != nil {
		next.made = now // the first rule is older than the first reads: the second does not wait
	}
	if matters {
		next.among = p.among(know, scarce)
	}
	next.Policy = next.Among(next.among)
	p.state.rule.Store(next)
	p.metrics.rules.WithLabelValues(cause).Inc()
	logger.V(2).Info("The rule of placement changed", "cause", cause, "kinds", len(mix.Kinds()), "weight", mix.Weight(),
		"neighbours", matters, "scarce", scarce, "knowledge", know.Version())
}

// changed returns why a rule is out of date, "" where it is not.
func changed(before *rule, mix *fragmentation.Mix, know *learning.Snapshot, matters, scarce bool) string {
	switch {
	case before == nil || before.mix != mix:
		return causeMix
	case matters != (before.among != nil):
		return causeSharing
	case matters && before.know.Version() != know.Version():
		return causeProfiles
	case scarce != before.scarce:
		return causeScarcity
	}
	return ""
}

// among returns the neighbours by what is known of workloads. On models whose devices enforce no limit every tenant may
// use all of a device.
func (p *Plugin) among(know *learning.Snapshot, scarce bool) *placement.Neighbours {
	tenant, unenforced := know.Tenant, p.state.unenforced()
	if len(unenforced) > 0 {
		tenant = func(w interference.Workload, model string, part vgpu.MilliGPU) interference.Tenant {
			if unenforced.Has(model) {
				part = vgpu.WholeGPU
			}
			return know.Tenant(w, model, part)
		}
	}
	return &placement.Neighbours{
		Model: p.crowding.model, Tenant: tenant, Known: know.Known, Weights: p.crowding.weights, Scarce: scarce || p.crowding.always,
	}
}

// slowdown returns the predicted slowdown of a pod in the ledger, the worst of its devices; false where the rule
// predicts nothing.
func (r *rule) slowdown(ledger *vgpu.Node, uid vgpu.UID) (float64, bool) {
	if r.among == nil {
		return 0, false
	}
	worst := 1.
	for i := range ledger.Devices() {
		here := ledger.Residents(i, nil)
		at := slices.IndexFunc(here, func(o vgpu.Resident) bool { return o.UID == uid })
		if at < 0 {
			continue
		}
		on := make([]interference.Tenant, len(here))
		for k := range here {
			on[k] = r.among.Tenant(interference.Workload(here[k].Workload), ledger.Devices()[i].Model, here[k].Compute)
		}
		worst = max(worst, r.among.Model.Predict(on, nil)[at].Slowdown())
	}
	return worst, true
}

// news names the WorkloadProfiles, "namespace/name", whose declared part changed since the rule looked last.
type news struct {
	mu       sync.Mutex
	profiles sets.Set[string]
}

func (n *news) add(profile string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.profiles == nil {
		n.profiles = sets.Set[string]{}
	}
	n.profiles.Insert(profile)
}

// any reports whether there are any.
func (n *news) any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.profiles) > 0
}

// due reports whether a pod is worth a new rule when the last has an age.
func (n *news) due(pod *v1.Pod, age time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.profiles) == 0 || age < ownPause {
		return false
	}
	return age >= newsPause || n.profiles.Has(profilePath(pod))
}

func (n *news) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.profiles = nil
}

// profilePath returns the "namespace/name" of the WorkloadProfile of a pod, whether or not there is one.
func profilePath(pod *v1.Pod) string {
	k := workloads.WorkloadOf(pod)
	return k.Namespace + "/" + k.ProfileName()
}
