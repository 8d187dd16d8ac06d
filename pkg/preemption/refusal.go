package preemption

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// refuse says why no units make room: by what they would be if budgets were violated, then if nobody were guarded as well.
func (q *question) refuse() *Refusal {
	cut := q.stats.Cut
	if q.terms.budgets {
		o := q.under(terms{guards: true})
		if a := o.answer(); a != nil {
			return o.would(Budgeted, a, cut)
		}
		cut = cut || o.stats.Cut
	}
	o := q.under(terms{})
	if !slices.Equal(o.may, q.may) {
		if a := o.answer(); a != nil {
			return o.would(Guarded, a, cut)
		}
		cut = cut || o.stats.Cut
	}
	return &Refusal{Reason: NeverHelps, Text: o.never(), Cut: cut}
}

// would says who would be evicted under the terms of this question, and why they are not.
func (q *question) would(reason Reason, a *answer, cut bool) *Refusal {
	r := &Refusal{Reason: reason, Would: a.units, Cut: cut || q.stats.Cut}
	r.Text = "would fit by evicting " + list(a.units, q.who) + "; not done because "
	if reason == Guarded {
		r.Guards = q.guards(a.units)
		r.Text += q.guarded(r.Guards)
	} else {
		var over []string
		r.Budgets, over = q.violated(a.units)
		r.Text += few(over)
	}
	return r
}

// guards lists the pods of units that are guarded, ascending.
func (q *question) guards(units []Unit) (pods []int) {
	for i := range units {
		for _, p := range units[i].Pods {
			if q.who.Pods[p].Guard != "" {
				pods = append(pods, p)
			}
		}
	}
	slices.Sort(pods)
	return pods
}

// guardWords say what a guard is, of one pod and of several.
var guardWords = map[Guard][2]string{
	Protected: {"is protected by its namespace or its labels", "are protected by their namespaces or labels"},
	TooYoung:  {"has run for less than its minimum", "have run for less than their minimum"},
	Foreign:   {"is not the scheduler's to evict", "are not the scheduler's to evict"},
}

// guarded says who is guarded, and how: "team/a-0 is protected by its namespace or its labels".
func (q *question) guarded(pods []int) string {
	byGuard := map[Guard][]string{}
	for _, p := range pods {
		v := &q.who.Pods[p]
		byGuard[v.Guard] = append(byGuard[v.Guard], v.Name)
	}
	parts := make([]string, 0, len(byGuard))
	for guard, names := range byGuard {
		words, known := guardWords[guard]
		if !known {
			words = [2]string{"is guarded: " + string(guard), "are guarded: " + string(guard)}
		}
		slices.Sort(names)
		parts = append(parts, few(names)+" "+words[min(1, len(names)-1)])
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// violated returns the names of the budgets that units violate, and what each allows, both by name.
func (q *question) violated(units []Unit) (names, words []string) {
	counts := make([]int, len(q.who.Budgets))
	for i := range units {
		for _, p := range units[i].Pods {
			for _, b := range q.who.Pods[p].Budgets {
				counts[b]++
			}
		}
	}
	for b, n := range counts {
		if of := &q.who.Budgets[b]; n > of.Allowed {
			names = append(names, of.Name)
			words = append(words, fmt.Sprintf("budget %s allows %d of the %d evictions", of.Name, of.Allowed, n))
		}
	}
	slices.Sort(names)
	slices.Sort(words)
	return names, words
}

// never says what is lacking once all pods are gone that are victims under the terms of this question: the nearest miss.
func (q *question) never() string {
	text := fmt.Sprintf("nobody of a priority below %d makes room: ", q.g.Members[0].Request.Priority)
	c := *q.c
	c.Nodes = slices.Clone(q.nodes)
	for i := range c.Nodes {
		if slices.ContainsFunc(q.on(i), func(p int32) bool { return q.may[p] }) {
			c.Nodes[i] = q.without(c.Nodes[i], i, func(p int32) bool { return q.may[p] })
		}
	}
	if q.single() {
		return text + q.nearest(&c)
	}
	plan, err := gang.Place(&c, q.g, q.cfg.Config)
	switch {
	case err != nil:
		return text + err.Error()
	case plan.Refused == nil:
		return text + apart
	}
	return text + plan.Refused.String()
}

// apart says that units are the reason.
const apart = "more would have to go than may, since a gang stays with its least number of members or goes as a whole"

// nearest returns why a pod has no room on the nodes of a cluster: the nearest miss. Where that could never take the pod, and nodes
// could which do not admit it, those are named.
func (q *question) nearest(c *gang.Cluster) string {
	m := &q.g.Members[0]
	var misses, barred []vgpu.Refusal
	poor, closed := 0, 0
	for i, n := range c.Nodes {
		lacks := lacksOf(n.Room(), m.Request.Host)
		switch refusal := q.cfg.Policy.Fit(n, &m.Request); {
		case c.Admits != nil && c.Admits(m.Kind, i) < 1:
			if refusal == nil || refusal.Helps != vgpu.NothingHelps {
				closed++
			} else {
				barred = append(barred, *refusal)
			}
		case refusal != nil:
			misses = append(misses, *refusal)
		case !lacks.met():
			poor++
		default:
			return apart
		}
	}
	miss, some := placement.Nearest(misses)
	switch {
	case poor == 1:
		return "1 node has the devices and lacks CPU or memory"
	case poor > 1:
		return fmt.Sprintf("%d nodes have the devices and lack CPU or memory", poor)
	case closed > 0 && (!some || miss.Helps == vgpu.NothingHelps):
		return "no node with devices for it admits it by its other conditions"
	case some && miss.Helps == vgpu.NothingHelps:
		miss, _ = placement.Nearest(append(barred, miss))
		return miss.String()
	case some:
		return miss.String()
	}
	return "no node admits it by its other conditions"
}
