package elasticity

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/resize"
)

// passAt returns a pass at a time. The gang train has been seen for long.
func passAt(now time.Time) *pass {
	m := &memory{size: resize.New(testRules, noon.Add(-time.Hour))}
	return &pass{Controller: &Controller{memory: map[podgroup.Ref]*memory{ref("train"): m}}, now: now}
}

// admission sets what the scheduler tells of a target since noon.
func admission(t *v1alpha1.ElasticTarget, read int32, message string) *v1alpha1.ElasticTarget {
	t.Status.Since = &metav1.Time{Time: noon}
	t.Status.Scheduler = &v1alpha1.ElasticTargetAdmission{Workers: read, Message: message}
	return t
}

func TestFollow(t *testing.T) {
	target := func(workers int32) *v1alpha1.ElasticTarget { return targetOf("train", 2, 8, workers) }
	full := func(workers int32) *v1alpha1.ElasticTarget {
		return admission(target(workers), workers, "no node has a GPU")
	}
	fixed := verdict{reason: reasonNoOwner, message: "the members are bare pods"}
	broken := errors.New("the rates are wrong")
	tests := []struct {
		name             string
		members, running int
		target           *v1alpha1.ElasticTarget
		resizable        verdict
		says             elastic.Target
		after            time.Duration
		workers          int
		reason           string
		event            string
	}{
		{"it has no target and waits", 8, 0, nil, yes, elastic.Target{Workers: 0, Why: elastic.Waits}, 0, 2, "Waits", ""},
		{"it waits with a large target", 8, 0, target(8), yes, elastic.Target{Workers: 0, Why: elastic.Waits}, 0, 2, "Waits", ""},
		{"it starts", 8, 0, target(2), yes, elastic.Target{Workers: 8, Why: elastic.Starts}, 0, 8, "Starts", ""},
		{"it grows without a target", 8, 2, nil, yes, elastic.Target{Workers: 8, Why: elastic.Idle}, 0, 8, "Idle", ""},
		{"it grows", 8, 2, target(2), yes, elastic.Target{Workers: 4, Why: elastic.Idle, Before: 2, After: 3}, 0, 4, "Idle",
			"grows from 2 to 4 members: GPUs are idle that no waiting job can use; expected rate +50 %"},
		{"it shrinks", 8, 8, target(8), yes, elastic.Target{Workers: 2, Why: elastic.ForWaiting, For: "gang ns/other"}, 0, 2, "ForWaiting",
			"shrinks from 8 to 2 members: gang ns/other waits for a place"},
		{"it stays", 8, 4, target(4), yes, elastic.Target{Workers: 4, Why: elastic.Steady}, 0, 4, "Steady", ""},
		{"members are missing", 8, 3, target(8), yes, elastic.Target{Workers: 4, Why: elastic.Steady}, 0, 8, "Steady", ""},
		{"members are missing, and it shrinks all the same", 8, 3, target(8), yes, elastic.Target{Workers: 2, Why: elastic.ForWaiting}, 0, 2, "ForWaiting",
			"shrinks from 8 to 2 members: another job waits for a place"},
		{"it is broken", 8, 4, target(8), yes, elastic.Target{Workers: 4, Why: elastic.Invalid, Err: broken}, 0, 8, "Invalid", ""},
		{"it is broken and has no target", 8, 5, nil, yes, elastic.Target{Workers: 5, Why: elastic.Invalid, Err: broken}, 0, 4, "Invalid", ""},
		{"the scheduler finds no places", 8, 4, full(8), yes, elastic.Target{Workers: 8, Why: elastic.Steady}, 121 * time.Second, 4, reasonNotAdmitted,
			"shrinks from 8 to 4 members: the scheduler found no places for more members: no node has a GPU"},
		{"nor does package elastic", 8, 4, full(8), yes, elastic.Target{Workers: 4, Why: elastic.Steady}, 121 * time.Second, 4, reasonNotAdmitted,
			"shrinks from 8 to 4 members: the scheduler found no places for more members: no node has a GPU"},
		{"nor does package elastic, not for long yet", 8, 4, full(8), yes, elastic.Target{Workers: 4, Why: elastic.Steady}, 120 * time.Second, 8, "Steady", ""},
		{"not for long yet", 8, 4, full(8), yes, elastic.Target{Workers: 8, Why: elastic.Steady}, 120 * time.Second, 8, "Steady", ""},
		{"for the target before", 8, 4, admission(target(8), 4, "no node has a GPU"), yes, elastic.Target{Workers: 8, Why: elastic.Steady}, time.Hour, 8, "Steady", ""},
		{"it has not tried", 8, 4, admission(target(8), 8, ""), yes, elastic.Target{Workers: 8, Why: elastic.Steady}, time.Hour, 8, "Steady", ""},
		{"it finds places for some", 8, 5, full(8), yes, elastic.Target{Workers: 8, Why: elastic.Steady}, time.Hour, 4, reasonNotAdmitted,
			"shrinks from 8 to 4 members: the scheduler found no places for more members: no node has a GPU"},
		{"it finds places for fewer than the least", 8, 1, full(8), yes, elastic.Target{Workers: 8, Why: elastic.Steady}, time.Hour, 8, "Steady", ""},
		{"it shrinks for others, and the scheduler finds no places", 8, 4, full(8), yes, elastic.Target{Workers: 2, Why: elastic.ForWaiting}, time.Hour, 2, "ForWaiting",
			"shrinks from 8 to 2 members: another job waits for a place"},
		{"all have places", 8, 8, full(8), yes, elastic.Target{Workers: 8, Why: elastic.AtMost}, time.Hour, 8, "AtMost", ""},
		{"not resizable", 8, 4, target(4), fixed, elastic.Target{Workers: 4, Why: elastic.AtMost}, 0, 4, reasonFixed, ""},
		{"not resizable, others wait", 8, 4, target(4), fixed, elastic.Target{Workers: 2, Why: elastic.ForWaiting}, 0, 4, reasonFixed, ""},
		{"not resizable, none runs", 8, 0, nil, fixed, elastic.Target{Workers: 2, Why: elastic.Starts}, 0, 2, reasonFixed, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := gangOf(members(t, "train", test.members, test.running, 0), test.target)
			g.resizable = test.resizable
			g.view = g.show()
			d := passAt(noon.Add(test.after)).follow(g, &test.says)
			if d.workers != test.workers || d.reason != test.reason || d.event != test.event {
				t.Errorf("%d workers, %s, event %q", d.workers, d.reason, d.event)
			}
			if d.message == "" || d.reason == reasonFixed && d.message != fixed.message || d.reason == "Invalid" && d.message != broken.Error() {
				t.Errorf("message %q", d.message)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	order := []int{3, 1} // job 3 shrinks, then job 1 grows
	jobs := []int{-1, 0, 1, 2, 3}
	slices.SortStableFunc(jobs, func(a, b int) int { return orderOf(order, a) - orderOf(order, b) })
	if diff := cmp.Diff([]int{3, 1, -1, 0, 2}, jobs); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// decided returns a decision on a gang.
func decided(g *elasticGang, workers int) *decision {
	return &decision{elasticGang: g, workers: workers, reason: "Idle", message: "GPUs are idle"}
}

func TestSpec(t *testing.T) {
	want := v1alpha1.ElasticTargetSpec{Source: "label", Min: 2, Max: 8, Workers: 4}
	if got := decided(gangOf(members(t, "train", 2, 2, 0), nil), 4).spec(); got != want {
		t.Errorf("%+v", got)
	}
}

// Since and Moves change with the number of a target alone.
func TestStatus(t *testing.T) {
	before := targetOf("train", 2, 8, 4)
	before.Status = v1alpha1.ElasticTargetStatus{
		Since: &metav1.Time{Time: seconds(-100)}, Moves: []metav1.Time{{Time: seconds(-100)}}, Scheduler: &v1alpha1.ElasticTargetAdmission{Workers: 4, Message: "no GPU"},
	}
	unset := before.DeepCopy()
	unset.Status = v1alpha1.ElasticTargetStatus{}
	now, old := seconds(0).Add(300*time.Millisecond), seconds(-100)
	for _, test := range []struct {
		name    string
		target  *v1alpha1.ElasticTarget
		running int
		workers int
		since   time.Time
		moves   []time.Time
	}{
		{"a new target", nil, 4, 8, noon, nil},
		{"the same number", before, 4, 4, old, []time.Time{old}},
		{"the same number, others run", before, 2, 4, old, []time.Time{old}},
		{"another number", before, 4, 8, noon, []time.Time{old, noon}},
		{"another number while none runs", before, 0, 8, noon, []time.Time{old}},
		{"a status that is empty", unset, 4, 4, noon, nil},
	} {
		g := gangOf(members(t, "train", 8, test.running, 0), test.target)
		m := remember(g, testRules, noon)
		if test.target == nil || int(test.target.Spec.Workers) != test.workers {
			m.size.Step(resize.Numbered{}, now)
		}
		s := decided(g, test.workers).status(m, now)
		var moves []time.Time
		for _, at := range s.Moves {
			moves = append(moves, at.Time)
		}
		if diff := cmp.Diff(test.moves, moves); diff != "" || !s.Since.Time.Equal(test.since) {
			t.Errorf("%s: since %v, moves (-want +got):\n%s", test.name, s.Since, diff)
		}
		if int(s.Workers) != test.running || s.Reason != "Idle" || s.Message != "GPUs are idle" {
			t.Errorf("%s: %+v", test.name, s)
		}
		if test.target == before && (s.Scheduler == nil || *s.Scheduler != *before.Status.Scheduler) {
			t.Errorf("%s: the scheduler's part became %+v", test.name, s.Scheduler)
		}
	}
	if len(before.Status.Moves) != 1 || len(before.Status.Conditions) > 0 {
		t.Errorf("the target itself has changed: %+v", before.Status)
	}
}

func TestMovesAreBounded(t *testing.T) {
	target := targetOf("train", 2, 8, 4)
	for i := range maxMoves {
		target.Status.Moves = append(target.Status.Moves, metav1.NewTime(seconds(i-100)))
	}
	g := gangOf(members(t, "train", 8, 4, 0), target)
	m := remember(g, testRules, noon)
	m.size.Step(resize.Numbered{}, noon)
	moves := decided(g, 8).status(m, noon).Moves
	if len(moves) != maxMoves || !moves[0].Equal(&target.Status.Moves[1]) || !moves[maxMoves-1].Time.Equal(noon) {
		t.Errorf("%v", moves)
	}
}

// The status has what was learned.
func TestStatusOfLearner(t *testing.T) {
	g := gangOf(members(t, "train", 8, 4, 0), targetOf("train", 2, 8, 4))
	m := remember(g, testRules, noon)
	if s := decided(g, 4).status(m, noon); s.ResizeSeconds != nil || s.Resizes != 0 || s.Rates != nil {
		t.Errorf("nothing is learned: %+v", s)
	}
	m.learner = elastic.Learner{Pause: 24.6, Pauses: 2, Seen: []elastic.Seen{{Workers: 4, Hosts: 1, Rate: 3, Reports: 1}}}
	if s := decided(g, 4).status(m, noon); s.ResizeSeconds == nil || *s.ResizeSeconds != 25 || s.Resizes != 2 || len(s.Rates) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestConditions(t *testing.T) {
	scheduler := admission(targetOf("train", 2, 8, 8), 8, "no node has a GPU")
	for _, test := range []struct {
		name     string
		running  int
		deleted  int // of those that run
		target   *v1alpha1.ElasticTarget
		workers  int
		admitted metav1.ConditionStatus
		says     string
	}{
		{"as many as the target", 4, 0, nil, 4, metav1.ConditionTrue, "4 members have a node"},
		{"too many", 8, 0, nil, 2, metav1.ConditionFalse, "8 members have a node, and 6 of them must leave"},
		{"some are about to end", 4, 1, nil, 4, metav1.ConditionFalse, "3 members have a node; still ending: 1"},
		{"enough, and some are about to end", 5, 1, nil, 4, metav1.ConditionFalse, "4 members have a node; still ending: 1"},
		{"one", 1, 0, nil, 1, metav1.ConditionTrue, "1 member has a node"},
		{"too few", 2, 0, nil, 8, metav1.ConditionFalse, "2 members have a node: the scheduler has not placed the others yet"},
		{"the scheduler says why", 2, 0, scheduler, 8, metav1.ConditionFalse, "2 members have a node: no node has a GPU"},
	} {
		pods := members(t, "train", 8, test.running, 0)
		for i := range test.deleted {
			leaving(pods[i])
		}
		g := gangOf(pods, test.target)
		g.resizable = verdict{reason: reasonNoOwner, message: "bare pods"}
		s := decided(g, test.workers).status(remember(g, testRules, noon), noon)
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAdmitted)
		if c == nil || c.Status != test.admitted || c.Message != test.says || c.Reason == "" || !c.LastTransitionTime.Time.Equal(noon) {
			t.Errorf("%s: %+v", test.name, c)
		}
		r := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResizable)
		if r == nil || r.Status != metav1.ConditionFalse || r.Reason != reasonNoOwner || r.Message != "bare pods" {
			t.Errorf("%s: %+v", test.name, r)
		}
	}
}

// A condition has the time of its status and reason, and a message is not longer than the schema allows.
func TestSetCondition(t *testing.T) {
	var s v1alpha1.ElasticTargetStatus
	setCondition(&s, v1alpha1.ConditionAdmitted, true, "A", "a", metav1.NewTime(noon))
	setCondition(&s, v1alpha1.ConditionAdmitted, true, "A", strings.Repeat("b", maxMessage+1), metav1.NewTime(seconds(10)))
	if c := s.Conditions[0]; len(s.Conditions) != 1 || !c.LastTransitionTime.Time.Equal(noon) || c.Reason != "A" || len(c.Message) != maxMessage {
		t.Errorf("%d conditions, since %v, %s, %d bytes", len(s.Conditions), c.LastTransitionTime, c.Reason, len(c.Message))
	}
	for at, reason := range map[int]string{20: "C", 30: "D"} {
		setCondition(&s, v1alpha1.ConditionAdmitted, false, reason, "c", metav1.NewTime(seconds(at)))
		if c := s.Conditions[0]; !c.LastTransitionTime.Time.Equal(seconds(at)) || c.Status != metav1.ConditionFalse {
			t.Errorf("%+v", c)
		}
	}
}

func TestChanged(t *testing.T) {
	for want, test := range map[string]struct {
		from, to int
		elastic.Target
	}{
		"grows from 4 to 8 members: GPUs are idle that no waiting job can use; expected rate +71 %": {4, 8, elastic.Target{Why: elastic.Idle, Before: 3, After: 5.13}},
		"grows from 4 to 8 members: it uses the GPUs better than another job":                       {4, 8, elastic.Target{Why: elastic.Faster, After: 5}},
		"grows from 2 to 4 members: it has its largest number of members":                           {2, 4, elastic.Target{Why: elastic.AtMost, Before: 3, After: 3}},
		"shrinks from 8 to 4 members: gang ns/a waits for a place; expected rate -40 %":             {8, 4, elastic.Target{Why: elastic.ForWaiting, For: "gang ns/a", Before: 5, After: 3}},
		"shrinks from 8 to 4 members: pod ns/a waits for a place":                                   {8, 4, elastic.Target{Why: elastic.ForWaiting, For: "pod ns/a"}},
		"shrinks from 8 to 4 members: gang ns/a uses the GPUs better":                               {8, 4, elastic.Target{Why: elastic.ForFaster, For: "ns/a"}},
		"shrinks from 8 to 4 members: another job uses the GPUs better":                             {8, 4, elastic.Target{Why: elastic.ForFaster}},
		"shrinks from 8 to 4 members: inference will need the GPUs":                                 {8, 4, elastic.Target{Why: elastic.ForReserved}},
	} {
		if got := changed(test.from, test.to, &test.Target); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each reason of package elastic is put into words.
func TestBecause(t *testing.T) {
	for _, why := range []elastic.Why{elastic.Steady, elastic.Idle, elastic.Faster, elastic.ForWaiting, elastic.ForFaster, elastic.ForReserved, elastic.Starts,
		elastic.Waits, elastic.AtMost, elastic.NoRoom, elastic.Settling, elastic.Invalid} {
		got := because(&elastic.Target{Why: why, Err: errors.New("the rates are wrong")})
		if !strings.Contains(got, " ") || why == elastic.Invalid && got != "the rates are wrong" {
			t.Errorf("%s: %q", why, got)
		}
	}
}

// The only gang of a namespace is written after one gang of another namespace, and not after all of them.
func TestGangsTakeTurns(t *testing.T) {
	var pods []*v1.Pod
	var refs []podgroup.Ref
	for _, r := range []podgroup.Ref{{Namespace: "ns", Name: "a0"}, {Namespace: "ns", Name: "a1"}, {Namespace: "ns", Name: "a2"}, {Namespace: "other", Name: "b"}} {
		r.Source = podgroup.XK8s
		for _, p := range members(t, r.Name, 2, 0, 0) {
			p.Namespace, p.Labels[groupLabel] = r.Namespace, r.Name
			pods = append(pods, p)
		}
		refs = append(refs, r)
	}
	w := newWorld(t, 1, pods...)
	for _, r := range refs {
		w.gangs.sizes[r] = []int{2, 4}
	}
	var written []string
	w.refuse = func(verb, name string) error {
		if verb == "status" {
			written = append(written, name)
		}
		return nil
	}
	w.pass(0)
	if want := []string{"a0", "b", "a1", "a2"}; !slices.Equal(written, want) {
		t.Errorf("written are %v, want %v", written, want)
	}
}
