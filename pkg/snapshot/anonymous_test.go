package snapshot_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// marked begins each name of a snapshot that mark has marked.
const marked = "zqx"

// words are the fields whose strings are words of Tandem or models of devices, by type and field. All others are names, or texts in which names
// occur.
var words = map[string]bool{
	"Snapshot.APIVersion": true, "Snapshot.Kind": true, "Snapshot.Source": true, "Device.Model": true, "Link.Class": true, "Container.Kind": true,
	"ContainerRequest.Kind": true, "Refusal.Reason": true, "Refusal.Helps": true, "Refusal.Model": true, "Refusal.Unit": true,
	"Refusal.Device": true, "Refusal.Present": true, "GangName.Source": true, "Gang.Phase": true, "Gang.Need": true,
	"Preemption.Phase": true,
}

// mark marks each string of a value that is not a word. A field that is new to the snapshot is marked too, so Anonymous must know it.
func mark(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			mark(v.Elem(), field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			mark(v.Index(i), field)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				mark(v.Field(i), v.Type().Name()+"."+f.Name)
			}
		}
	case reflect.Map: // of labels, whose keys stay
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf(marked+v.MapIndex(key).String()))
		}
	case reflect.String:
		if kind, name, ok := strings.Cut(v.String(), "/"); ok && strings.HasSuffix(field, ".Owners") && kind != "Acme" {
			v.SetString(kind + "/" + marked + name)
		} else if s := v.String(); s != "" && !words[field] {
			v.SetString(marked + strings.ReplaceAll(s, "/", "/"+marked))
		}
	}
}

// markedSnapshot draws a snapshot whose names, and texts, all have the mark.
func markedSnapshot(t *rapid.T) *snapshot.Snapshot {
	s, _ := drawSnapshot(t)
	s = s.Redact(func(string) bool { return true }) // a copy without shared lists would do as well
	for i := range s.Nodes {
		s.Nodes[i].Topology = map[string]string{"topology.kubernetes.io/zone": rapid.SampledFrom([]string{"z1", "z2"}).Draw(t, "zone")}
		s.Nodes[i].Problem = rapid.SampledFrom([]string{"", s.Nodes[i].Name}).Draw(t, "problem")
		for k := range s.Nodes[i].Devices {
			s.Nodes[i].Devices[k].Reason = rapid.SampledFrom([]string{"", s.Nodes[i].Name}).Draw(t, "reason")
		}
		for k := range s.Nodes[i].Pods {
			p := &s.Nodes[i].Pods[k]
			p.Owners = []string{"Job/" + p.Name.Name}
			p.On = []snapshot.On{{Device: p.Containers[0].Devices[0], SlowdownMilli: 1100}}
		}
	}
	for i := range s.Gangs {
		s.Gangs[i].Reason, s.Gangs[i].Message = s.Gangs[i].Name, "all of "+s.Gangs[i].Name
	}
	for i := range s.Pending {
		s.Pending[i].Refused.Nodes = []snapshot.RefusedNodes{{Reason: s.Nodes[0].Name, Nodes: 1}}
		s.Pending[i].Refused.Nearest.Node = s.Nodes[0].Name
		s.Pending[i].Owners, s.Pending[i].Gates = []string{"Job/j", "Acme/s"}, []string{"acme.com/quota"}
		s.Pending[i].Request.Models, s.Pending[i].Refused.Nearest.Allowed = []snapshot.ModelRequest{{Model: "acme-gpu"}}, []string{"acme-gpu"}
	}
	for i := range s.InferenceFleets {
		s.InferenceFleets[i].Reason, s.ElasticTargets[i].Reason = s.InferenceFleets[i].Name, s.ElasticTargets[i].Name
		s.InferenceFleets[i].Variants[0].Model = "acme-gpu"
	}
	raw, err := snapshotjson.Read([]byte(write(t, s))) // nothing is shared any more
	must.OK(t, err)
	mark(reflect.ValueOf(raw), "")
	raw.Redacted = false
	return raw
}

// An anonymous snapshot has no name of the cluster anywhere, is sound, and has the same shares on the same devices in the same order.
func TestAnonymousNamesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := markedSnapshot(t)
		s.Sort()
		before := write(t, s)
		anonymous := s.Anonymous()
		raw := write(t, anonymous)
		if strings.Contains(raw, marked) {
			t.Fatalf("a name in:\n%s", raw)
		}
		if write(t, s) != before {
			t.Fatal("Anonymous changed the snapshot that others read")
		}
		if _, err := snapshotjson.Read([]byte(raw)); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if !anonymous.Redacted || raw != write(t, s.Anonymous()) {
			t.Fatal("sentences are left out and the snapshot does not say it, or the next time it has other names")
		}
		if diff := cmp.Diff(numbers(t, s), numbers(t, anonymous)); diff != "" {
			t.Fatalf("other amounts (-before +after):\n%s", diff)
		}
	})
}

// A namespace may have the name that Redact gives to hidden ones: the objects in it have names all the same. Users write the models of a request.
func TestAnonymousSparesNobody(t *testing.T) {
	pod := snapshot.Name{Namespace: "other", Name: "secret-0", UID: "u1"}
	s := &snapshot.Snapshot{
		Source: snapshot.FromScheduler, Nodes: []snapshot.Node{{Name: "n1", Devices: []snapshot.Device{{ID: "g", Model: "A100", Slots: 10, MemoryBytes: 10, Healthy: true}}}},
		Gangs: []snapshot.Gang{{GangName: snapshot.GangName{Source: "label", Namespace: "other", Name: "secret-gang"}}},
		InferenceFleets: []snapshot.InferenceFleet{{
			Namespace: "other", Name: "secret-fleet", Variants: []snapshot.Variant{{Name: "secret-v", Model: "secret-project"}, {Name: "secret-w", Model: "A100"}},
		}},
		Pending: []snapshot.Pending{{
			Name: pod, Workload: "secret-profile", Request: &snapshot.Request{Models: []snapshot.ModelRequest{{Model: "A100"}, {Model: "secret-project"}}},
			Refused: &snapshot.Refused{Nearest: &snapshot.Refusal{Allowed: []string{"A100", "secret-project"}}},
		}},
	}
	raw := write(t, s.Anonymous())
	if strings.Contains(raw, "secret") || !strings.Contains(raw, `"A100"`) {
		t.Error(raw)
	}
	hidden := s.Redact(func(string) bool { return false })
	if raw := write(t, hidden); strings.Contains(raw, "secret") || !strings.Contains(raw, `"A100"`) {
		t.Error(raw)
	}
}

// Gangs keep the levels that nodes have, and lose keys that nobody else has: these may be names.
func TestAnonymousTopology(t *testing.T) {
	s := &snapshot.Snapshot{
		Source: snapshot.FromScheduler,
		Nodes:  []snapshot.Node{{Name: "n1", Topology: map[string]string{"topology.example.com/rack": "r1"}}, {Name: "n2", Topology: map[string]string{"topology.example.com/rack": "r1"}}},
		Gangs: []snapshot.Gang{{
			GangName: snapshot.GangName{Source: "label", Namespace: "a", Name: "g"}, RequiredTopology: []string{"topology.example.com/rack", "secret.topology/x"},
			PreferredTopology: []string{"secret.topology/y", "topology.example.com/rack"},
		}},
	}
	got := s.Anonymous()
	rack := []string{"topology.example.com/rack"}
	if diff := cmp.Diff([][]string{rack, rack}, [][]string{got.Gangs[0].RequiredTopology, got.Gangs[0].PreferredTopology}); diff != "" {
		t.Error(diff)
	}
	for i := range got.Nodes {
		if diff := cmp.Diff(map[string]string{"topology.example.com/rack": "place-1"}, got.Nodes[i].Topology); diff != "" {
			t.Error(diff)
		}
	}
}

// numbers returns the amounts of all devices and slices, in the order of the snapshot.
func numbers(t *rapid.T, s *snapshot.Snapshot) any {
	c, err := s.Cluster()
	must.OK(t, err)
	m := vgpu.MapOf(c.Nodes())
	for i := range m.Nodes {
		m.Nodes[i].Name = ""
		for k := range m.Nodes[i].Devices {
			d := &m.Nodes[i].Devices[k]
			d.ID = ""
			for j := range d.Slices {
				d.Slices[j].Pod, d.Slices[j].UID = "", ""
			}
		}
	}
	return m.Nodes
}

// One thing has one name, order stays, w-10 is behind w-2, and words and sentences without names stay.
func TestAnonymousNames(t *testing.T) {
	pod := func(namespace, name, uid string, gang *snapshot.GangName) snapshot.Pending {
		return snapshot.Pending{Name: snapshot.Name{Namespace: namespace, Name: name, UID: vgpu.UID(uid)}, Gang: gang}
	}
	gang := &snapshot.GangName{Source: "label", Namespace: "vision", Name: "yolo"}
	s := &snapshot.Snapshot{
		Source:  snapshot.FromScheduler,
		Nodes:   []snapshot.Node{{Name: "dgx-a", Problem: "the node is cordoned"}, {Name: "dgx-b", Problem: "the agent of dgx-b is old"}},
		Pending: []snapshot.Pending{pod("vision", "w-10", "u1", gang), pod("vision", "w-2", "u2", gang), pod("audio", "w-2", "u3", nil), pod(snapshot.Other, "other:000001", "u4", nil)},
	}
	s.Pending[2].Refused = &snapshot.Refused{
		Message: "no room beside vision/w-2", Illegal: "profile bert reaches at most 300", Nodes: []snapshot.RefusedNodes{{Reason: "NodeAffinity", Nodes: 1}, {Reason: "w-10", Nodes: 1}},
		Nearest: &snapshot.Refusal{Reason: vgpu.PromiseBroken, Helps: "eviction", Promised: "vision/w-2", Beside: []string{"vision/w-10", snapshot.Other}},
	}
	got := s.Anonymous()
	names := func(s *snapshot.Snapshot) (all []string) {
		for i := range s.Nodes {
			all = append(all, s.Nodes[i].Name+": "+s.Nodes[i].Problem)
		}
		for i := range s.Pending {
			all = append(all, string(s.Pending[i].UID)+" "+s.Pending[i].Path())
		}
		return all
	}
	want := []string{"node-1: the node is cordoned", "node-2: text 2", "uid-1 team-2/pod-3", "uid-2 team-2/pod-2", "uid-3 team-1/pod-1", "uid-4 other/other:000001"}
	if diff := cmp.Diff(want, names(got)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if a, b := got.Pending[0].Gang, got.Pending[1].Gang; *a != *b || a.Namespace != "team-2" || a.Name != "gang-1" || a.Source != "label" {
		t.Errorf("the gang is %v and %v", a, b)
	}
	wantRefused := &snapshot.Refused{
		Illegal: snapshot.Other,
		Nodes:   []snapshot.RefusedNodes{{Reason: "NodeAffinity", Nodes: 1}, {Reason: "text 4", Nodes: 1}},
		Nearest: &snapshot.Refusal{Reason: vgpu.PromiseBroken, Helps: "eviction", Promised: "team-2/pod-2", Beside: []string{"team-2/pod-3", snapshot.Other}},
	}
	if diff := cmp.Diff(wantRefused, got.Pending[2].Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// ours are the fields, beside words, whose strings no tenant writes: administrators, agents and Tandem's programs do.
var ours = map[string]bool{
	"Node.Name": true, "Node.Problem": true, "Node.Topology": true, "Device.ID": true, "Device.Reason": true, "Place.Node": true, "Refusal.Node": true,
	"On.Device": true, "Container.Devices": true, "Overbooked.Devices": true, "RefusedNodes.Reason": true, "Gang.Reason": true, "ElasticTarget.Reason": true, "InferenceFleet.Reason": true,
}

// fill gives each string of a value a text of its own that has the mark, but where it is a word. Lists get one element each.
func fill(v reflect.Value, field string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"topology": marked + field}))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && v.Type().PkgPath() == reflect.TypeFor[snapshot.Snapshot]().PkgPath() {
				fill(v.Field(i), v.Type().Name()+"."+f.Name)
			}
		}
	case reflect.String:
		if !words[field] {
			v.SetString(marked + field + "/" + marked)
		}
	}
}

// show calls a function for each string of a value.
func show(v reflect.Value, field string, see func(field, text string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			show(v.Elem(), field, see)
		}
	case reflect.Slice:
		for i := range v.Len() {
			show(v.Index(i), field, see)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			see(field, v.MapIndex(key).String())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				show(v.Field(i), v.Type().Name()+"."+f.Name, see)
			}
		}
	case reflect.String:
		see(field, v.String())
	}
}

// A string of any field that a tenant may have written is not in a snapshot for readers who may see nothing. None that anybody wrote is in an anonymous
// one, but for sentences of Tandem without a name. A new field has to be known here.
func TestEachFieldIsHidden(t *testing.T) {
	var s snapshot.Snapshot
	fill(reflect.ValueOf(&s).Elem(), "")
	for name, of := range map[string]struct {
		hidden *snapshot.Snapshot
		stays  func(field string) bool
	}{
		"redacted": {s.Redact(func(string) bool { return false }), func(field string) bool { return ours[field] }},
		"anonymous": {s.Anonymous(), func(field string) bool {
			return ours[field] && (strings.HasSuffix(field, ".Reason") || field == "Node.Problem")
		}},
	} {
		show(reflect.ValueOf(of.hidden), "", func(field, text string) {
			if strings.Contains(text, marked) && !of.stays(field) {
				t.Errorf("%s: %s is %q", name, field, text)
			}
		})
	}
}
