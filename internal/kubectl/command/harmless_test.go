package command

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// All texts lose the characters that a terminal takes for commands, also those that tenants choose, such as the models of a
// request.
func TestHarmless(t *testing.T) {
	for _, bad := range []string{"X\x1b]0;owned\a", "X\u009b2J", "X\x7f"} {
		s := &snapshot.Snapshot{
			Source: snapshot.FromScheduler, Nodes: []snapshot.Node{{Name: "n1", Topology: map[string]string{"topology/" + bad: bad}, Devices: []snapshot.Device{}}},
			Pending: []snapshot.Pending{{
				Name: snapshot.Name{Namespace: "a", Name: "p", UID: "u"}, Request: &snapshot.Request{Models: []snapshot.ModelRequest{{Model: bad}}},
				Refused: &snapshot.Refused{Message: bad, Nodes: []snapshot.RefusedNodes{{Reason: bad, Nodes: 1}}},
			}},
		}
		raw, err := snapshotjson.Write(s)
		if err != nil {
			t.Fatal(err)
		}
		harmless(s, raw)
		p := &s.Pending[0]
		all := p.Request.Models[0].Model + p.Refused.Message + p.Refused.Nodes[0].Reason
		for key, value := range s.Nodes[0].Topology {
			all += key + value
		}
		if strings.ContainsAny(all, "\x1b\a\u009b\x7f") || strings.Count(all, "X ") != 5 {
			t.Errorf("%q", all)
		}
	}
}
