package elasticity

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/resize"
)

// rules returns the rules of package resize.
func (c *Controller) rules() resize.Config {
	return resize.Config{Notice: c.options.Notice, Within: c.options.AdmitWithin}
}

// look has package resize look at a gang, and takes over what it refuses.
func (p *pass) look(g *elasticGang) {
	g.view = g.show()
	state := p.memory[g.Ref].size
	for _, e := range state.Step(resize.Looked{View: g.view}, p.now) {
		if e, is := e.(resize.LeaveOwner); is {
			p.metrics.contests.WithLabelValues(contestMembers).Inc()
			p.options.Recorder.Eventf(g.about(), nil, v1.EventTypeWarning, reasonOtherWriter, "Resize", "%s", "leaves its size alone: "+g.undone(&e.Refusal))
		}
	}
	g.takeOver(state)
}

// takeOver makes the refusal of an owner, where there is one, what the gang is not resizable for.
func (g *elasticGang) takeOver(state *resize.State) {
	r, owner := state.Refusal(), g.resizable.owner
	if r == nil || owner == nil {
		return
	}
	g.resizable = verdict{owner: owner, generation: r.Generation, reason: r.Code, message: r.Text}
	switch {
	case r.Text != "":
	case r.Kind == resize.OtherWriter:
		g.resizable.reason, g.resizable.message = reasonOtherWriter, g.undone(r)
	case r.Kind == resize.NotFollowed:
		then := "the number goes back"
		if state.Phases()[1] == resize.Refused {
			then = "the number went back"
		}
		then += fmt.Sprintf("; the controller tries again at %s, or once the object changes or the ElasticTarget is deleted", r.Until.UTC().Format("15:04 MST"))
		if r.Stays != "" {
			then = "the number is to go back, which the controller tries each minute, and " + r.Stays
		}
		g.resizable.reason = reasonNotFollowed
		g.resizable.message = fmt.Sprintf("%s of %s changed from %d to %d members, and its controller did not follow within %v: %s",
			owner.Field(), owner, r.From, r.To, r.After.Round(time.Second), then)
	}
}

// undone says that somebody changes the number of the owner back.
func (g *elasticGang) undone(r *resize.Refusal) string {
	owner := g.resizable.owner
	return r.Says(owner.String(), "members", owner.Field()) + ", or once the ElasticTarget is deleted"
}

// show returns what package resize sees of a gang.
func (g *elasticGang) show() *resize.View {
	v := &resize.View{
		Sizes: g.Sizes, Possible: g.possible(), Running: len(g.running), Members: g.shown(), Reach: membership.Reach(g.workersOf(), 0, g.Sizes[0]), Lacks: g.lacks(),
		Fixed: !g.resizable.yes, Unread: g.resizable.unread, Paused: g.paused, Pin: g.pin,
	}
	if t := g.target; t != nil {
		v.Number = int(t.Spec.Workers)
		if t.Status.Since != nil {
			v.Since = t.Status.Since.Time
		}
	}
	if o := g.resizable.owner; o != nil {
		v.Owner = &resize.Owner{UID: string(o.Object.GetUID()), Generation: o.Object.GetGeneration(), Number: o.Members()}
		v.Before = g.refusedBefore()
	}
	return v
}

// shown returns the members, and the pods that some have left.
func (g *elasticGang) shown() []resize.Member {
	pods := slices.Concat(g.all, g.ended)
	list, within := make([]resize.Member, len(pods)), g.within(pods)
	for i, pod := range pods {
		said, notified := pod.Annotations[v1alpha1.AnnotationLeaving]
		leaves, err := time.Parse(time.RFC3339, said)
		if err != nil {
			leaves = time.Time{}
		}
		there := i < len(g.all) && pod.DeletionTimestamp == nil
		list[i] = resize.Member{
			ID: string(pod.UID), Within: within[i], Running: there && pod.Spec.NodeName != "", Waits: there && pod.Spec.NodeName == "",
			Unfinished: pod.DeletionTimestamp != nil || len(pod.Finalizers) > 0, Notified: notified, Leaves: leaves,
		}
	}
	return list
}

// within returns the least number that counts each pod, 0 for those that no number has leave. If no owner says which ones leave, these are the
// last ones of those that run. Pods that have ended count where the owner numbers its pods: the index says which they are.
func (g *elasticGang) within(pods []*v1.Pod) []int {
	o := g.resizable.owner
	switch {
	case o != nil && o.Leave == sizefield.HighestIndex:
		return o.Within(pods)
	case o != nil:
		return append(o.Within(g.all), make([]int, len(g.ended))...)
	}
	list, running := make([]int, len(pods)), 0
	for i, pod := range g.all {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			running++
			list[i] = running
		}
	}
	return list
}

// lacks says why further members of the target have no nodes, "" where that is unknown.
func (g *elasticGang) lacks() string {
	if g.target == nil {
		return ""
	}
	number := int(g.target.Spec.Workers)
	if s := g.target.Status.Scheduler; s != nil && s.Message != "" && int(s.Workers) == number {
		return "the scheduler found no places for more members: " + s.Message
	}
	if o := g.resizable.owner; o != nil && o.Members() >= number && len(g.all)+len(g.ended) < number {
		return fmt.Sprintf("%s should have %d members, and its controller has made %d", o, o.Members(), len(g.all))
	}
	return ""
}

// refusedBefore returns the refusal of the owner that the condition tells, nil for none. An earlier process may have written it.
func (g *elasticGang) refusedBefore() *resize.Refusal {
	if g.target == nil {
		return nil
	}
	c := meta.FindStatusCondition(g.target.Status.Conditions, v1alpha1.ConditionResizable)
	if c == nil || c.Status != metav1.ConditionFalse || g.resizable.owner.Object.GetCreationTimestamp().After(c.LastTransitionTime.Time) { // another object had the name
		return nil
	}
	r := &resize.Refusal{Code: c.Reason, Text: c.Message, Generation: c.ObservedGeneration}
	switch c.Reason {
	case sizefield.ChangeRefused:
		r.Kind = resize.ByServer
	case reasonNotFollowed, reasonOtherWriter:
		r.Kind = map[string]resize.Kind{reasonNotFollowed: resize.NotFollowed, reasonOtherWriter: resize.OtherWriter}[c.Reason]
		r.Until = c.LastTransitionTime.Add(resize.Again) // see setCondition
	default:
		return nil
	}
	return r
}

// idsOf returns the members as a set.
func idsOf(members []resize.Member) map[string]bool {
	ids := make(map[string]bool, len(members))
	for _, m := range members {
		ids[m.ID] = true
	}
	return ids
}
