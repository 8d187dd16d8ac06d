package snapshot_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/test/must"
)

// A Writer writes what Write writes, whatever it wrote before. The JSON of a node is written anew where its version is another one, or 0.
func TestPropertyWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w snapshotjson.Writer
		version := uint64(0)
		last, _ := drawSnapshot(t)
		for range rapid.IntRange(1, 4).Draw(t, "snapshots") {
			s, _ := drawSnapshot(t)
			for i := range s.Nodes {
				n := &s.Nodes[i]
				if i < len(last.Nodes) && last.Nodes[i].Name == n.Name && rapid.Bool().Draw(t, "same") {
					*n = last.Nodes[i]
					continue
				}
				version++
				n.Version = rapid.SampledFrom([]uint64{0, version}).Draw(t, "version")
			}
			got, err := w.Write(s)
			must.OK(t, err)
			if want := write(t, s); string(got) != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
			last = s
		}
	})
}

// The JSON of a node of an equal version is the one from before: nothing is written anew that has not changed.
func TestWriterKeepsNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := drawSnapshot(t)
		for i := range s.Nodes {
			s.Nodes[i].Version = 1
		}
		var w snapshotjson.Writer
		before, err := w.Write(s)
		must.OK(t, err)
		for i := range s.Nodes {
			s.Nodes[i].Problem = "a change that the version hides"
		}
		if after, err := w.Write(s); err != nil || string(after) != string(before) {
			t.Fatalf("%v\n%s\n%s", err, before, after)
		}
	})
}
