package preemption

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// refuse returns why no units make room. The search runs again with violated budgets, and then also with guarded pods
// as victims.
func (q *question) refuse() *Refusal {
	cut := q.stats.Cut
	if q.terms.budgets {
		o := q.withTerms(terms{guards: true})
		if a := o.answer(); a != nil {
			return o.would(Budgeted, a, cut)
		}
		cut = cut || o.stats.Cut
	}
	o := q.withTerms(terms{})
	if !slices.Equal(o.evictable, q.evictable) {
		if a := o.answer(); a != nil {
			return o.would(Guarded, a, cut)
		}
		cut = cut || o.stats.Cut
	}
	return &Refusal{Reason: NeverHelps, Text: o.neverText(), Cut: cut}
}

// would returns the refusal that names the units under the terms of this question, and says why they stay.
func (q *question) would(reason Reason, a *answer, cut bool) *Refusal {
	r := &Refusal{Reason: reason, Would: a.units, Cut: cut || q.stats.Cut}
	r.Text = "would fit by evicting " + list(a.units, q.candidates) + "; not done because "
	if reason == Guarded {
		r.Guards = q.guards(a.units)
		r.Text += q.guarded(r.Guards)
	} else {
		var over []string
		r.Budgets, over = q.violated(a.units)
		r.Text += firstNames(over)
	}
	return r
}

// guards lists the guarded pods of units, ascending.
func (q *question) guards(units []Unit) (pods []int) {
	for i := range units {
		for _, p := range units[i].Pods {
			if q.candidates.Pods[p].Guard != "" {
				pods = append(pods, p)
			}
		}
	}
	slices.Sort(pods)
	return pods
}

// guardWords describe each guard, of one pod and of several.
var guardWords = map[Guard][2]string{
	Protected: {"is protected by its namespace or its labels", "are protected by their namespaces or labels"},
	TooYoung:  {"has run for less than its minimum", "have run for less than their minimum"},
	Foreign:   {"is not the scheduler's to evict", "are not the scheduler's to evict"},
}

// guarded names the guarded pods with their guards: "team/a-0 is protected by its namespace or its labels".
func (q *question) guarded(pods []int) string {
	byGuard := map[Guard][]string{}
	for _, p := range pods {
		v := &q.candidates.Pods[p]
		byGuard[v.Guard] = append(byGuard[v.Guard], v.Name)
	}
	parts := make([]string, 0, len(byGuard))
	for guard, names := range byGuard {
		words, known := guardWords[guard]
		if !known {
			words = [2]string{"is guarded: " + string(guard), "are guarded: " + string(guard)}
		}
		slices.Sort(names)
		parts = append(parts, firstNames(names)+" "+words[min(1, len(names)-1)])
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// violated returns the names of the budgets that units violate, and a text for each, both sorted.
func (q *question) violated(units []Unit) (names, words []string) {
	counts := make([]int, len(q.candidates.Budgets))
	for i := range units {
		for _, p := range units[i].Pods {
			for _, b := range q.candidates.Pods[p].Budgets {
				counts[b]++
			}
		}
	}
	for b, n := range counts {
		if of := &q.candidates.Budgets[b]; n > of.Allowed {
			names = append(names, of.Name)
			words = append(words, fmt.Sprintf("budget %s allows %d of the %d evictions", of.Name, of.Allowed, n))
		}
	}
	slices.Sort(names)
	slices.Sort(words)
	return names, words
}

// neverText describes what is lacking after the eviction of all possible victims: the nearest miss.
func (q *question) neverText() string {
	own := q.g.Members[0].Request.Priority
	text := fmt.Sprintf("no pods of a priority below %d make room: ", own)
	c, some := *q.c, false
	c.Nodes = slices.Clone(q.nodes)
	for i := range c.Nodes {
		if slices.ContainsFunc(q.podsOn(i), func(p int32) bool { return q.evictable[p] }) {
			c.Nodes[i], some = q.without(c.Nodes[i], i, func(p int32) bool { return q.evictable[p] }), true
		}
	}
	if !some && !q.single() { // what the gang lacks was said when no place was found
		return fmt.Sprintf("there are no pods of a priority below %d that may be evicted", own)
	}
	if q.single() {
		return text + q.nearest(&c)
	}
	plan, err := gang.Place(&c, q.g, q.cfg.Config)
	switch {
	case err != nil:
		return text + err.Error()
	case plan.Refused == nil:
		return text + unitsTooLarge
	}
	return text + plan.Refused.String()
}

// unitsTooLarge is the text where enough pods of a lower priority exist, but gangs cannot lose them.
const unitsTooLarge = "too few pods may be evicted, since a gang keeps its least number of members or is evicted as a whole"

// nearest returns the nearest miss of a pod on the nodes of a cluster. If no admitting node could ever take the pod,
// and nodes that do not admit it could, the text names the latter.
func (q *question) nearest(c *gang.Cluster) string {
	m := &q.g.Members[0]
	var misses, barred []vgpu.Refusal
	poor, closed := 0, 0
	elsewhere := m.Request
	elsewhere.Steps = placement.Fewer(&elsewhere, placement.StepsOn(len(c.Nodes))) // those of the request are for the nodes that admit it
	for i, n := range c.Nodes {
		lacks, r, admitted := lacksOf(n.Room(), m.Request.Host), &m.Request, c.Admits == nil || c.Admits(m.Kind, i) >= 1
		if !admitted {
			r = &elsewhere
		}
		switch refusal := q.cfg.Policy.Fit(n, r); {
		case !admitted:
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
			return unitsTooLarge
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
