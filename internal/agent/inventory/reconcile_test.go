package inventory

import (
	"testing"

	"github.com/tandem-gpu/tandem/internal/agent/config"
)

// some returns a GPU with the little that the inventory looks at.
func some(id string, index, minor int) GPU {
	return GPU{ID: id, Index: index, Minor: minor, Model: "A100"}
}

func TestReconcileKeepsWhatIsOnlyLost(t *testing.T) {
	a, b := some("GPU-a", 0, 5), some("GPU-b", 1, 3)
	have := reconcile(nil, []GPU{b, a}, config.Config{}.SlotsOf)
	have[1].Sick = &Sickness{Reason: "GPULost"}
	next := reconcile(have, []GPU{a}, config.Config{}.SlotsOf)
	if len(next) != 2 || next[1].ID != "GPU-b" || next[1].Sick == nil {
		t.Errorf("devices %+v, want the lost one too", next)
	}
	part := some("MIG-a", 2, 3)
	part.Parent = "GPU-b"
	next = reconcile(append(have, Device{GPU: part}), []GPU{a}, config.Config{}.SlotsOf)
	if len(next) != 3 {
		t.Errorf("devices %+v: nothing says that the GPU of the instance is divided otherwise", next)
	}
	next = reconcile(append(have[:1:1], Device{GPU: part}), []GPU{a, b}, config.Config{}.SlotsOf)
	if len(next) != 2 || Find(next, "MIG-a") != nil {
		t.Errorf("devices %+v, want the whole GPU in place of its instance", next)
	}
}
