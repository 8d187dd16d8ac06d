package wording

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestGivesWay explains two running gangs that each hold what the other one needs.
func TestGivesWay(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a, b := snapshot.GangName{Source: "label", Namespace: "lab", Name: "a"}, snapshot.GangName{Source: "label", Namespace: "lab", Name: "b"}
	waits := func(name string, gang snapshot.GangName) snapshot.Pending {
		return snapshot.Pending{Name: snapshot.NameOf("lab/"+name, "u"), Gang: &gang, Request: &snapshot.Request{Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: 10}}}}
	}
	s := &snapshot.Snapshot{
		Source: snapshot.FromScheduler, At: now, Pending: []snapshot.Pending{waits("a-1", a), waits("b-1", b)},
		Gangs: []snapshot.Gang{
			{GangName: a, MinCount: 2, Phase: "Running", Need: "Refused", GivesWay: &snapshot.GivesWay{Gang: b, At: now.Add(8 * time.Minute)}},
			{GangName: b, MinCount: 2, Phase: "Running", Need: "Refused", GivesWay: &snapshot.GivesWay{Gang: a, At: now.Add(3 * time.Minute)}},
		},
	}
	for gang, want := range map[snapshot.GangName]string{
		a: "Gang lab/b lacks members too: if its GPUs help, it is evicted for this gang, in 3m.",
		b: "Gang lab/a lacks members too: if the GPUs of this gang help it, this gang is evicted, in 3m.",
	} {
		answer, err := why.Gang(s, gang)
		must.OK(t, err)
		if got := Answer(answer, s.At, false); !strings.Contains(got, want) {
			t.Errorf("why says\n%s\nwant %s", got, want)
		}
	}
	s.At = now.Add(time.Hour)
	answer, err := why.Gang(s, b)
	must.OK(t, err)
	if got := Answer(answer, s.At, false); !strings.Contains(got, "this gang is evicted, from now on.") {
		t.Errorf("why says\n%s", got)
	}
}
