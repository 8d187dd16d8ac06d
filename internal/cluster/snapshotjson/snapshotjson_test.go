package snapshotjson_test

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// sound is a snapshot of one node with one pod, in this version.
const sound = `{"apiVersion":"snapshot.tandem-gpu.io/v1","kind":"Snapshot","minor":0,"source":"scheduler","at":"2026-01-01T00:00:00Z",
"redacted":false,"nodes":[{"name":"n1","freeMilliCPU":0,"freeMemoryBytes":0,
"devices":[{"id":"GPU-1","index":0,"model":"T4","slots":10,"memoryBytes":1000,"contexts":48,"healthy":true},
{"id":"GPU-2","index":1,"model":"T4","slots":10,"memoryBytes":1000,"contexts":48,"healthy":true}],
"links":[{"between":[0,1],"class":"PIX"}],
"pods":[{"namespace":"a","name":"p","uid":"u1","containers":[{"name":"main","kind":"app","devices":["GPU-1"],"slots":3,"memoryBytes":300,
"computeLimitMilliGPU":300,"memoryLimitBytes":300}]}],"holds":[]}],
"gangs":[],"preemptions":[],"pending":[],"pendingLeftOut":0,"elasticTargets":[],"inferenceFleets":[]}`

// Read refuses a broken snapshot with the path of the field and what is legal there.
func TestRead(t *testing.T) {
	tests := []struct {
		name     string
		old, new string
		// says are parts of the error, none where the snapshot is read.
		says []string
	}{
		{name: "sound"},
		{"other version", "tandem-gpu.io/v1", "tandem-gpu.io/v2", []string{"apiVersion", `"snapshot.tandem-gpu.io/v2"`, "legal is snapshot.tandem-gpu.io/v1"}},
		{"other kind", `"kind":"Snapshot"`, `"kind":"Map"`, []string{`kind: "Map"`, "legal is Snapshot"}},
		{"negative minor", `"minor":0`, `"minor":-1`, []string{"minor: -1", "legal is 0 or more"}},
		{"unknown field", `"freeMilliCPU"`, `"freeCPU"`, []string{`unknown field "nodes[0].freeCPU"`}},
		{"field in other letters", `"slots":3`, `"Slots":3`, []string{`unknown field "nodes[0].pods[0].containers[0].Slots"`}},
		{"no JSON", "{", "", []string{"read snapshot: "}},
		{"number as a string", `"index":0`, `"index":"0"`, []string{"nodes.devices.index", "type int"}},
		{"source", `"source":"scheduler"`, `"source":"me"`, []string{`source: "me"`, "scheduler simulator"}},
		{"kind of a container", `"kind":"app"`, `"kind":"main"`, []string{`nodes[0].pods[0]: containers[0].kind: "main"`, "app init sidecar"}},
		{"class of a link", `"PIX"`, `"PCI"`, []string{`nodes[0].links[0].class: "PCI"`, "PIX"}},
		{"link to nowhere", `[0,1]`, `[0,2]`, []string{"nodes[0].links[0].between: [0 2]", "2 devices"}},
		{"share above the device", `"slots":3`, `"slots":11`, []string{"nodes[0].pods[0]", "11 slots of 10"}},
		{"unknown device", `["GPU-1"]`, `["GPU-3"]`, []string{"nodes[0].pods[0]", "unknown device GPU-3"}},
		{"order", `"id":"GPU-2","index":1`, `"id":"GPU-2","index":-1`, []string{"nodes[0].devices[1]: legal is a greater key"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.old != "" && !strings.Contains(sound, test.old) {
				t.Fatalf("the snapshot has no %s", test.old)
			}
			_, err := snapshotjson.Read([]byte(strings.Replace(sound, test.old, test.new, 1)))
			if len(test.says) == 0 && err != nil {
				t.Fatal(err)
			}
			for _, want := range test.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error has no %q: %v", want, err)
				}
			}
		})
	}
}

// Read ignores the fields that a newer minor version has, at all depths, and reads the known ones.
func TestNewerMinor(t *testing.T) {
	newer := strings.NewReplacer(`"minor":0`, `"minor":9,"new":{}`, `"slots":3`, `"new":1,"slots":3`).Replace(sound)
	s, err := snapshotjson.Read([]byte(newer))
	must.OK(t, err)
	if got := s.Nodes[0].Pods[0].Containers[0].Slots; got != 3 {
		t.Errorf("read %d slots, want 3", got)
	}
	if _, err := snapshotjson.Read([]byte(strings.Replace(newer, `"kind":"app"`, `"kind":"later"`, 1))); err == nil {
		t.Error("a word that is not legal in this version was read")
	}
}

// Lists are never null: a program that reads them needs no case for that.
func TestEmptyLists(t *testing.T) {
	raw, err := snapshotjson.Write(&snapshot.Snapshot{Source: snapshot.FromScheduler})
	must.OK(t, err)
	if strings.Contains(string(raw), "null") {
		t.Errorf("a list is null: %s", raw)
	}
}
