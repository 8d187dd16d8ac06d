package preemption_test

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// TestNobodyToEvict: where no pod may be evicted for a gang, the text does not repeat what the gang lacks, which was said when no place was found.
func TestNobodyToEvict(t *testing.T) {
	c, candidates := fullRacks(t, 2)
	candidates.Pods = nil
	plan, err := preemption.Victims(c, membersOf(9), candidates, preemption.Config{})
	if err != nil || plan.Refused == nil || plan.Refused.Text != "there are no pods of a priority below 5 that may be evicted" {
		t.Errorf("%+v, %v", plan.Refused, err)
	}
}
