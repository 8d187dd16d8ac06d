package workloads

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/interference"
)

// When a learned utilisation counts instead of a declared one.
const (
	// sureObservations of a workload alone. Fewer would let a warm-up overrule what its owner knows; more would keep a
	// wrong declaration for longer.
	sureObservations = 10
	// farPercent of a device that both differ. Less would react to the noise of telemetry, which is some points. More
	// would let a tenant claim a third of a device more than it uses, and so keep neighbours away.
	farPercent = 25
)

// Known says which fields of a profile have a declaration or an observation.
type Known struct {
	SM, Bandwidth, PCIe, Memory, Step, Class bool
}

// Use is the known use of a workload on one GPU model.
type Use struct {
	// Model is the product name of the devices.
	Model string
	// Profile to predict with. Its Guessed is set where SM or Bandwidth has no declaration, no observation, and no
	// graph within the measured range.
	Profile interference.Profile
	// Known says which of its fields have a declaration or an observation on this model.
	Known Known
	// Learned holds the observations on this model, nil for none.
	Learned *Learned
}

// Workload is what a WorkloadProfile says. Read it by On; it does not change.
type Workload struct {
	// Name is "namespace/name" of the WorkloadProfile.
	Name string
	// Malformed names the illegal fields that ReadProfile skipped, with their values and the legal ones.
	Malformed []string
	// Contradictions name the fields whose declared and learned values differ, both values, and which one counts.
	Contradictions []string

	declared []use // by model
	learned  []Learned
	guess    *interference.Estimate
	points   points
	losses   []gang.Loss // by level
	scaling  Scaling
}

// use is a declared use.
type use struct {
	model   string
	profile interference.Profile
	known   Known
}

// ReadProfile returns what a WorkloadProfile says. Illegal values, which the schema should have kept out, are no error:
// it skips them and names them in Malformed.
func ReadProfile(p *v1alpha1.WorkloadProfile) *Workload {
	w := &Workload{Name: p.Namespace + "/" + p.Name}
	for i := range p.Spec.Uses {
		w.readUse(fmt.Sprintf("spec.uses[%d]", i), &p.Spec.Uses[i])
	}
	slices.SortFunc(w.declared, func(a, b use) int { return strings.Compare(a.model, b.model) })
	w.readGraph(p.Spec.Graph)
	for i := range p.Status.Learned {
		w.readLearned(fmt.Sprintf("status.learned[%d]", i), &p.Status.Learned[i])
	}
	slices.SortFunc(w.learned, func(a, b Learned) int { return strings.Compare(a.Model, b.Model) })
	w.points = w.readPoints(p.Spec.Throughputs)
	w.losses = w.readSpread(p.Spec.Spread)
	w.readScaling(p.Spec.Scaling)
	for i := range w.learned {
		l := &w.learned[i]
		if d := w.declaredOn(l.Model); d != nil {
			w.compare(d, l)
		}
	}
	return w
}

// With returns the workload with other things learned of it, by model. Condition is about the read profile.
func (w *Workload) With(learned []Learned) *Workload {
	other := *w
	other.learned = learned
	return &other
}

// Learned returns what was observed, by model. The caller must not change the list.
func (w *Workload) Learned() []Learned { return w.learned }

// On returns the use on a GPU model. A field without a declaration or observation on the model comes, in this order,
// from the model with the most observations (the first by name of equals), from the graph, and from
// interference.Unknown.
func (w *Workload) On(model string) Use {
	u := Use{Model: model}
	if d := w.declaredOn(model); d != nil {
		u.Profile, u.Known = d.profile, d.known
	}
	said := u.Known.SM || u.Known.Bandwidth || w.guess != nil
	u.Learned = w.learnedOn(model)
	if u.Learned != nil {
		u.merge(u.Learned)
	}
	if !u.Known.Step {
		u.Profile.Step, u.Known.Step = w.points.step(model)
	}
	u.fill(w.mostSeen(), w.guess)
	u.Profile.Declared = said && !w.observed()
	return u
}

// observed reports whether there are observations of the whole use on some GPU model, and enough of them to overrule
// the declaration there.
func (w *Workload) observed() bool {
	return slices.ContainsFunc(w.learned, func(l Learned) bool {
		return l.Known.SM && l.Known.Bandwidth && l.SoloObservations >= sureObservations
	})
}

func (w *Workload) declaredOn(model string) *use {
	i := slices.IndexFunc(w.declared, func(d use) bool { return d.model == model })
	if i < 0 {
		i = slices.IndexFunc(w.declared, func(d use) bool { return d.model == v1alpha1.AnyModel })
	}
	if i < 0 {
		return nil
	}
	return &w.declared[i]
}

func (w *Workload) learnedOn(model string) *Learned {
	i := slices.IndexFunc(w.learned, func(l Learned) bool { return l.Model == model })
	if i < 0 {
		return nil
	}
	return &w.learned[i]
}

// mostSeen returns the learned values of the model with the most observations, or nil.
func (w *Workload) mostSeen() *Learned {
	var most *Learned
	for i := range w.learned {
		if l := &w.learned[i]; most == nil || l.SoloObservations > most.SoloObservations {
			most = l
		}
	}
	return most
}

// merge lets the learned values of the model count beside or instead of the declared ones.
func (u *Use) merge(l *Learned) {
	if l.Known.SM && !u.Known.SM || l.overrules(l.Known.SM, u.Profile.SM, l.SM) {
		u.Profile.SM, u.Known.SM = l.SM, true
	}
	if l.Known.Bandwidth && !u.Known.Bandwidth || l.overrules(l.Known.Bandwidth, u.Profile.Bandwidth, l.Bandwidth) {
		u.Profile.Bandwidth, u.Known.Bandwidth = l.Bandwidth, true
	}
	if l.Known.Memory {
		u.Profile.Memory, u.Known.Memory = max(u.Profile.Memory, l.Memory), true
	}
}

// fill guesses the unknown fields.
func (u *Use) fill(elsewhere *Learned, graph *interference.Estimate) {
	from := interference.Unknown()
	if graph != nil {
		from = graph.Profile
	}
	if elsewhere != nil && elsewhere != u.Learned {
		if elsewhere.Known.SM {
			from.SM, from.Guessed = elsewhere.SM, true
		}
		if elsewhere.Known.Bandwidth {
			from.Bandwidth, from.Guessed = elsewhere.Bandwidth, true
		}
		if elsewhere.Known.Memory {
			from.Memory = elsewhere.Memory
		}
	}
	p := &u.Profile
	p.Guessed = from.Guessed && (!u.Known.SM || !u.Known.Bandwidth)
	if !u.Known.SM {
		p.SM = from.SM
	}
	if !u.Known.Bandwidth {
		p.Bandwidth = from.Bandwidth
	}
	if !u.Known.Memory {
		p.Memory = from.Memory
	}
	if !u.Known.Class {
		p.Class = from.Class
	}
}

// compare notes where declared and learned contradict each other.
func (w *Workload) compare(d *use, l *Learned) {
	note := func(field string, declared, learned any, counts string) {
		w.Contradictions = append(w.Contradictions,
			fmt.Sprintf("%s on %s: declared %v, learned %v; the %s counts", field, l.Model, declared, learned, counts))
	}
	learnedOne := fmt.Sprintf("learned one, of %d observations,", l.SoloObservations)
	if d.known.SM && l.overrules(l.Known.SM, d.profile.SM, l.SM) {
		note("smUtilizationPercent", percent(d.profile.SM), percent(l.SM), learnedOne)
	}
	if d.known.Bandwidth && l.overrules(l.Known.Bandwidth, d.profile.Bandwidth, l.Bandwidth) {
		note("memoryBandwidthPercent", percent(d.profile.Bandwidth), percent(l.Bandwidth), learnedOne)
	}
	if d.known.Memory && l.Known.Memory && l.Memory > d.profile.Memory {
		note("memory", d.profile.Memory, l.Memory, "larger one")
	}
}

// overrules reports whether an observed part of a device counts instead of a declared one. It compares percents, since
// declarations are whole ones.
func (l *Learned) overrules(known bool, declared, observed float64) bool {
	difference := percent(declared) - percent(observed)
	return known && l.SoloObservations >= sureObservations && (difference > farPercent || difference < -farPercent)
}

// Condition returns the condition Consistent of the profile, without a time.
func (w *Workload) Condition(generation int64) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionConsistent, Status: metav1.ConditionTrue, Reason: v1alpha1.ConsistentAgrees,
		Message: "nothing learned contradicts what is declared", ObservedGeneration: generation,
	}
	if all := slices.Concat(w.Malformed, w.Contradictions); len(all) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ConsistentContradicts, message(all)
	}
	if len(w.Malformed) > 0 {
		c.Reason = v1alpha1.ConsistentMalformed
	}
	return c
}

// maxMessage bounds the message of a condition, below the 32 KiB that the API admits.
const maxMessage = 4096

// message joins texts, as many as fit.
func message(all []string) string {
	text := all[0]
	for i, next := range all[1:] {
		if len(text)+len(next) > maxMessage {
			return fmt.Sprintf("%s; and %d more", text, len(all)-1-i)
		}
		text += "; " + next
	}
	return text
}

func (w *Workload) malformed(field string, value any, legal string) {
	w.Malformed = append(w.Malformed, fmt.Sprintf("%s: %q is not legal, %s", field, kube.Shown(fmt.Sprint(value)), legal))
}

func (w *Workload) readUse(path string, d *v1alpha1.DeclaredUse) {
	if slices.ContainsFunc(w.declared, func(o use) bool { return o.model == d.Model }) || d.Model == "" {
		w.malformed(path+".model", d.Model, "it must be the name of a model that no other entry has")
		return
	}
	u := use{model: d.Model}
	u.profile.SM, u.known.SM = w.part(path+".smUtilizationPercent", d.SMUtilizationPercent)
	u.profile.Bandwidth, u.known.Bandwidth = w.part(path+".memoryBandwidthPercent", d.MemoryBandwidthPercent)
	u.profile.PCIe, u.known.PCIe = w.part(path+".pcieUtilizationPercent", d.PCIeUtilizationPercent)
	u.profile.Memory, u.known.Memory = w.memory(path+".memory", d.Memory, 1)
	if d.Step != nil {
		u.profile.Step, u.known.Step = w.step(path+".step", d.Step.Duration)
	}
	if d.Class != "" {
		class, err := interference.ClassByName(string(d.Class))
		if err != nil {
			w.malformed(path+".class", d.Class, "it must be one of "+strings.Join(interference.ClassNames(), ", "))
		}
		// The declaration "unknown" is none.
		u.profile.Class, u.known.Class = class, class != interference.ClassUnknown
	}
	w.declared = append(w.declared, u)
}

func (w *Workload) readGraph(g *v1alpha1.ModelGraph) {
	if g == nil {
		return
	}
	predictor := interference.FittedPredictor()
	guess, err := predictor.Predict(interference.Features{
		GigaFLOPs: float64(g.MegaFLOPs) / 1000, Parameters: float64(g.Parameters), Activations: float64(g.Activations),
		Batch: float64(g.BatchSize), Depth: float64(g.Depth),
	})
	if err != nil {
		w.Malformed = append(w.Malformed, fmt.Sprintf("spec.graph: %v", err))
		return
	}
	w.guess = &guess
}

// step reads a time, in seconds.
func (w *Workload) step(path string, d time.Duration) (float64, bool) {
	if d < kube.MinLatency || d > kube.MaxLatency {
		w.malformed(path, d, "it must be from 1us to 1h")
		return 0, false
	}
	return d.Seconds(), true
}

// part reads a percentage as a part of a device.
func (w *Workload) part(path string, value *int32) (float64, bool) {
	if value == nil {
		return 0, false
	}
	if *value < 0 || *value > 100 {
		w.malformed(path, *value, "it must be from 0 to 100")
		return 0, false
	}
	return float64(*value) / 100, true
}
