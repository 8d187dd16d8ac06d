package gang

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestPassedOver(t *testing.T) {
	started := map[vgpu.UID]int64{"old": 99, "same": 100, "new": 101}
	tests := []struct {
		name    string
		leavers []vgpu.UID
		want    bool
	}{
		{"nobody is in the way", nil, false},
		{"one was there before the gang waited", []vgpu.UID{"new", "old"}, false},
		{"one was placed at the same second", []vgpu.UID{"new", "same"}, false},
		{"all came since", []vgpu.UID{"new", "assumed"}, true},
		{"one was only just placed: nobody knows when", []vgpu.UID{"assumed"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &Refusal{}
			for _, uid := range test.leavers {
				r.Leavers = append(r.Leavers, Leaver{UID: uid})
			}
			if got := r.PassedOver(100, func(uid vgpu.UID, _ string) int64 { return started[uid] }); got != test.want {
				t.Errorf("passed over: %v, want %v", got, test.want)
			}
		})
	}
}
