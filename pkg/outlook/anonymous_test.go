package outlook_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

// quoted matches the strings of a JSON text.
var quoted = regexp.MustCompile(`"[^"]*"`)

// shape returns the JSON of an answer in which each string is the number of its first use: equal for answers that differ in names only.
func shape(t *rapid.T, answer any) string {
	raw, err := json.MarshalIndent(answer, "", " ")
	must.OK(t, err)
	numbers := map[string]string{}
	return quoted.ReplaceAllStringFunc(string(raw), func(s string) string {
		if numbers[s] == "" {
			numbers[s] = fmt.Sprintf(`"%d"`, len(numbers))
		}
		return numbers[s]
	})
}

// An anonymous snapshot gives the same outlook, and the same reasons why its pods wait, as the snapshot does, names aside.
func TestAnonymousGivesTheSameAnswersProperty(t *testing.T) {
	started, waiting := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawRun(t)
		if s.Policy.Name == "random" { // it draws lots by the names
			return
		}
		s.Preemption = sim.PreemptionConfig{Policy: sim.PreemptTandem, Grace: time.Second}
		h, err := sim.Run(s)
		must.OK(t, err)
		snap, err := h.SnapshotAt(time.Duration(rapid.IntRange(0, 4).Draw(t, "at")) * time.Second)
		must.OK(t, err)
		anonymous := snap.Anonymous()
		plain, err := outlook.Play(snap, rules(&s), 10*time.Second)
		must.OK(t, err)
		other, err := outlook.Play(anonymous, rules(&s), 10*time.Second)
		must.OK(t, err)
		delete(other.Gaps, outlook.Names)
		if diff := cmp.Diff(shape(t, plain), shape(t, other)); diff != "" {
			t.Fatalf("the outlook (-names +anonymous):\n%s", diff)
		}
		for _, p := range plain.Pods {
			if p.Node != "" {
				started++
			}
		}
		waiting += len(snap.Pending)
		compareReasons(t, snap, anonymous)
	})
	if started == 0 || waiting == 0 {
		t.Errorf("%d pods waited and %d got a node in all histories", waiting, started)
	}
}

// compareReasons compares what package why says of the pods that wait: they have the same order in both snapshots.
func compareReasons(t *rapid.T, snap, anonymous *snapshot.Snapshot) {
	for i := range snap.Pending {
		plain, err := why.Pod(snap, snap.Pending[i].UID)
		must.OK(t, err)
		other, err := why.Pod(anonymous, anonymous.Pending[i].UID)
		must.OK(t, err)
		if diff := cmp.Diff(shape(t, plain), shape(t, other)); diff != "" {
			t.Fatalf("why (-names +anonymous):\n%s", diff)
		}
	}
}
