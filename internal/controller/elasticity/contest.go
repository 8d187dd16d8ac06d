package elasticity

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/contest"
	"github.com/tandem-gpu/tandem/pkg/resize"
)

// serversNumber is what has become of the number of parameter servers that the controller wrote.
type serversNumber struct {
	contest.Number
	// wish is what the members said when the number was first read, and of the object that has it. Another wish, and another object of the name,
	// is tried at once.
	wish string
	of   types.UID
	// before is the generation of the object that the last write changed, 0 for none.
	before int64
	// said tells a contest.
	said string
}

// wrote notes a change of the number.
func (n *serversNumber) wrote(t *tuning, to int, now time.Time) {
	n.Wrote(t.replicas, to, now)
	n.before = t.generation
}

// isUnseen reports whether the informer does not show the last write yet.
func (n *serversNumber) isUnseen(t *tuning) bool { return n.before > 0 && n.before == t.generation }

// readServers notes what the number of servers is now, and leaves it alone where somebody else writes it back.
func (p *pass) readServers(g *elasticGang, n *serversNumber) {
	t := g.tuning
	if t == nil || t.template == nil {
		return
	}
	said := g.all[0].Annotations
	wish := said[v1alpha1.AnnotationElasticRate] + " " + said[v1alpha1.AnnotationElasticServers]
	if n.wish != wish || n.of != t.uid || g.target == nil {
		first := n.wish == ""
		if *n = (serversNumber{wish: wish, of: t.uid}); first {
			n.resume(g.target)
		}
	}
	if g.paused { // its user may scale the servers
		*n = serversNumber{wish: wish, of: t.uid}
		return
	}
	if n.isUnseen(t) || !n.Read(t.replicas, 0, p.now) {
		return
	}
	if n.Began(p.now) {
		n.said = n.Undone().Says(t.Servers.Kind+" "+t.Servers.Name, "servers", "spec.replicas") + ", or once the rate changes or the ElasticTarget is deleted"
		p.metrics.contests.WithLabelValues(contestServers).Inc()
		p.options.Recorder.Eventf(g.about(), nil, v1.EventTypeWarning, reasonOtherWriter, "Scale", "%s", "leaves its servers alone: "+n.said)
	}
	t.contested = n.said
}

// resume goes on with the contest that the condition of a target tells. An earlier process may have written it.
func (n *serversNumber) resume(target *v1alpha1.ElasticTarget) {
	if target == nil {
		return
	}
	if c := meta.FindStatusCondition(target.Status.Conditions, v1alpha1.ConditionRateReached); c != nil && c.Reason == reasonOtherWriter {
		n.said = c.Message
		n.Resume(c.LastTransitionTime.Add(resize.Again), 0)
	}
}
