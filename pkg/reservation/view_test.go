package reservation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// A gang that is not known yet has priority 0. It leaves pods of its priority the host that evictions make room on, until the node
// counts the pod itself, or the room ends.
func TestBesidePods(t *testing.T) {
	s, now := New(Config{Deadline: time.Minute}), time.Unix(1e9, 0)
	host := vgpu.Room{MilliCPU: 2000, Memory: vgpu.GiB}
	for uid, priority := range map[vgpu.UID]int32{"equal": 0, "lower": -1} {
		room := PodRoom{Place: placeOf(string(uid), "n1/g0").Assignment, Host: host, Priority: priority, Victims: []PodRef{refOf("a")}}
		s.Step(PodRoomMade{PodRef: refOf(uid), Room: room, Until: now.Add(time.Minute), Evict: []Chosen{{UID: "a"}}}, now)
	}
	counted := ""
	isThere := func(node string, pod vgpu.UID) bool { return node+"/"+string(pod) == counted }
	for _, x := range []struct {
		what, counted string
		event         Event
		want          map[string]vgpu.Room
	}{
		{"victims leave", "", nil, map[string]vgpu.Room{"n1": host}},
		{"the node counts it", "n1/equal", nil, map[string]vgpu.Room{}},
		{"another node counts it", "n2/equal", nil, map[string]vgpu.Room{"n1": host}},
		{"the room ends", "", PodEnded{UID: "equal", Gone: true}, map[string]vgpu.Room{}},
	} {
		if counted = x.counted; x.event != nil {
			s.Step(x.event, now)
		}
		if diff := cmp.Diff(x.want, s.Beside(Ref{Name: "gang"}, isThere)); diff != "" {
			t.Errorf("%s:\n%s", x.what, diff)
		}
	}
}
