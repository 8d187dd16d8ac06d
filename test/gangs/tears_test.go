package gangs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/test/must"
)

// The checks of a long rest come after several instants of evictions. Each instant is a decision of its own: the last one may take
// all that the ones before, and the ends in between, have left.
func TestEachInstantOfEvictionsIsJudgedAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		// instants are what happens, one after the other: e evicts a member, d ends one by itself, b binds one more, and r is an
		// eviction that the API server refuses.
		instants []string
		want     string
	}{
		{name: "one instant leaves enough", instants: []string{"ee"}},
		{name: "one instant takes all", instants: []string{"eeeee"}},
		{name: "one instant leaves too few", instants: []string{"eee"}, want: "leaves gang g 2 members of 3"},
		{name: "the second instant takes what an end has left", instants: []string{"e", "deee"}},
		{name: "the second instant leaves too few", instants: []string{"e", "ee"}, want: "leaves gang g 2 members of 3"},
		{name: "the first instant leaves too few and the second takes the rest", instants: []string{"eee", "ee"}, want: "leaves gang g 2 members of 3"},
		{name: "a member that is bound later does not mend the first instant", instants: []string{"eee", "b"}, want: "leaves gang g 2 members of 3"},
		{name: "an eviction that was refused comes later", instants: []string{"eeer", "ee"}},
		{name: "a refusal long before is no excuse", instants: []string{"r", "", "", "", "", "", "", "", "", "", "", "eee"}, want: "leaves gang g 2 members of 3"},
		{name: "a member that is bound at the same instant counts", instants: []string{"eeeb"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{
					ctx: t.Context(), api: newAPI(), hosts: map[string]*host{"n": {name: "n"}}, torn: map[string][]*tear{},
					claims: map[string]*claim{}, arrivals: map[string]arrival{},
					teams: map[string]*team{"g": {name: "g", source: "label", members: 6, min: 3}},
				}
				g := w.teams["g"]
				for i := range 5 {
					w.addRunning(t, g.member(i))
				}
				next := 0
				for _, instant := range c.instants {
					for _, what := range instant {
						w.suffer(t, g, what, &next)
					}
					time.Sleep(3 * time.Second) // of the bubble: the next instant
				}
				w.checkEvictions()
				if (c.want == "") != (w.violation == "") || !strings.Contains(w.violation, c.want) {
					t.Errorf("violation %q, want %q", w.violation, c.want)
				}
			})
		})
	}
}

func (w *world) addRunning(t *testing.T, name string) {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: v1.PodSpec{NodeName: "n"}}
	must.OK(t, w.api.core.Tracker().Add(pod))
}

// suffer has the next member evicted or ended, or one more bound.
func (w *world) suffer(t *testing.T, g *team, what rune, next *int) {
	t.Helper()
	switch what {
	case 'b':
		w.addRunning(t, g.member(5))
		if tear := w.tearAt(g, time.Now()); tear != nil {
			tear.before++
		}
		return
	case 'r':
		w.api.refusals = append(w.api.refusals, time.Now())
		return
	}
	pod := w.api.pod(g.member(*next)).DeepCopy()
	*next++
	switch what {
	case 'e':
		w.evicted(g, pod, "ending")
	case 'd':
		w.noticeEnd(g, pod, "ending")
	default:
		panic(fmt.Sprintf("unknown event %c", what))
	}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	must.OK(t, w.api.core.Tracker().Update(podResource, pod, namespace))
}
