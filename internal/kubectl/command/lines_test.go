package command_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// add adds what a line says.
func add(s *snapshot.Snapshot, words []string) error {
	if len(words) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		values[key] = value
	}
	line, known := lines[words[0]]
	if !known {
		return fmt.Errorf("unknown word %s", words[0])
	}
	return line(s, words[1], values)
}

func gangOf(path string) *snapshot.GangName {
	if path == "" {
		return nil
	}
	n := snapshot.NameOf(path, "")
	return &snapshot.GangName{Source: "label", Namespace: n.Namespace, Name: n.Name}
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // a word that is no number is a mistake in a test, whose answer shows it
	return n
}

// lines are the lines that add to a drawing, by their first words: see TestDrawn.
var lines = map[string]func(s *snapshot.Snapshot, name string, values map[string]string) error{
	"node": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		for i := range s.Nodes {
			if s.Nodes[i].Name == name {
				s.Nodes[i].Problem, s.Nodes[i].StraySlots = spaced(values["problem"]), vgpu.Slots(number(values["stray"]))
			}
		}
		return nil
	},
	"device": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		for i := range s.Nodes {
			for k := range s.Nodes[i].Devices {
				if d := &s.Nodes[i].Devices[k]; string(d.ID) == name {
					d.Reason, d.Note = values["reason"], spaced(values["note"])
				}
			}
		}
		return nil
	},
	"overbooked": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		for i := range s.Nodes {
			for k := range s.Nodes[i].Devices {
				if d := &s.Nodes[i].Devices[k]; string(d.ID) == values["device"] {
					d.Healthy = false
					s.Nodes[i].Overbooked = append(s.Nodes[i].Overbooked, snapshot.Overbooked{
						Name: snapshot.NameOf(name, vgpu.UID(name)), Devices: []vgpu.DeviceID{d.ID}, Slots: vgpu.Slots(number(values["slots"])),
					})
				}
			}
		}
		return nil
	},
	"pod": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		for i := range s.Nodes {
			for k := range s.Nodes[i].Pods {
				if p := &s.Nodes[i].Pods[k]; p.Path() == name {
					p.Priority, p.Gang, p.MaxSlowdownMilli = int32(number(values["priority"])), gangOf(values["gang"]), number(values["max-slowdown"])
					p.Reserved = values["reserved"] != ""
					p.EndsBy, p.Owners = later(values["ends"]), listed(values["owners"], ',')
					p.Ends = likelyEnds(listed(values["likely"], ','), int(number(values["known"])))
					if values["ran"] != "" {
						p.Since = at.Add(-time.Duration(number(values["ran"])) * time.Minute)
					}
				}
			}
		}
		return nil
	},
	"hold": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		for i := range s.Nodes {
			for k := range s.Nodes[i].Holds {
				if h := &s.Nodes[i].Holds[k]; h.Path() == name {
					h.Until = later(values["until"])
				}
			}
		}
		return nil
	},
	"gang": addGang,
	"target": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		s.ElasticTargets = append(s.ElasticTargets, snapshot.ElasticTarget{
			GangName: *gangOf(name), Workers: int(number(values["workers"])), Min: int(number(values["min"])), Max: int(number(values["max"])), Reason: values["reason"],
		})
		return nil
	},
	"preemption": func(s *snapshot.Snapshot, name string, values map[string]string) error {
		p := snapshot.Preemption{
			Gang: gangOf(name), Phase: "Leaving", Until: later(values["until"]),
			Victims: []snapshot.Place{{Name: snapshot.NameOf(values["victim"], vgpu.UID(values["victim"])), Node: "n1"}},
		}
		if pod, ok := strings.CutPrefix(name, "pod="); ok {
			of := snapshot.NameOf(pod, vgpu.UID(pod))
			p.Pod, p.Gang = &of, nil
		}
		if values["phase"] != "" {
			p.Phase = values["phase"]
		}
		s.Preemptions = append(s.Preemptions, p)
		return nil
	},
	"pending": addPending,
	"on":      addOn,
}

func addGang(s *snapshot.Snapshot, name string, values map[string]string) error {
	g := snapshot.Gang{
		GangName: *gangOf(name), MinCount: int(number(values["min"])), Members: int(number(values["members"])), Bound: int(number(values["bound"])),
		RequiredTopology: listed(values["required"], ','), Phase: values["phase"], Need: values["need"], Message: spaced(values["message"]), Reason: values["reason"],
	}
	if values["waits"] != "" {
		g.WaitsSince = at.Add(-time.Duration(number(values["waits"])) * time.Minute)
	}
	for _, place := range listed(values["places"], ',') {
		pod, node, _ := strings.Cut(place, "@")
		g.Places = append(g.Places, snapshot.Place{Name: snapshot.NameOf(pod, vgpu.UID(pod)), Node: node})
	}
	s.Gangs = append(s.Gangs, g)
	return nil
}

// addOn adds what is measured and predicted of a pod on a device.
func addOn(s *snapshot.Snapshot, pod string, values map[string]string) error {
	on := snapshot.On{Device: vgpu.DeviceID(values["device"]), SlowdownMilli: number(values["slowdown"])}
	if values["sm"] != "" {
		percent := int(number(values["sm"]))
		on.SMPercent = &percent
	}
	if values["used"] != "" {
		used, err := testkit.ParseBytes(values["used"])
		if err != nil {
			return err
		}
		on.MemoryUsedBytes = &used
	}
	if values["rate"] != "" {
		rate := number(values["rate"]) * 1e6
		on.RateMicro = &rate
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			if p := &s.Nodes[i].Pods[k]; p.Path() == pod {
				p.On = append(p.On, on)
			}
		}
	}
	return nil
}

func addPending(s *snapshot.Snapshot, name string, values map[string]string) error {
	p := snapshot.Pending{
		Name: snapshot.NameOf(name, vgpu.UID(name)), Gang: gangOf(values["gang"]), Gates: listed(values["gates"], ','), Owners: listed(values["owners"], ','),
		Since: at.Add(-time.Duration(number(values["minutes"])) * time.Minute),
	}
	var err error
	if values["malformed"] == "" {
		p.Request, err = request(values)
	}
	if values["refused"] != "never" {
		p.Refused = &snapshot.Refused{Message: spaced(values["message"] + values["malformed"]), Illegal: spaced(values["illegal"])}
	}
	for _, r := range listed(values["refused"], ',') {
		if reason, n, ok := strings.Cut(r, ":"); ok {
			p.Refused.Nodes = append(p.Refused.Nodes, snapshot.RefusedNodes{Reason: reason, Nodes: int(number(n))})
		}
	}
	if values["promise"] != "" { // the nearest miss of the last attempt
		device, slowdown, _ := strings.Cut(values["promise"], ":")
		node, name, _ := strings.Cut(device, "/")
		p.Refused.Nearest = &snapshot.Refusal{
			Reason: vgpu.PromiseBroken, Helps: "eviction", Node: node, Device: name, Unit: vgpu.UnitMilliSlowdown, Want: p.Request.MaxSlowdownMilli,
			Best: number(slowdown), Of: p.Request.MaxSlowdownMilli, Beside: listed(values["beside"], ','),
		}
		p.Refused.RoomAtSlowdownMilli = number(values["room-at"])
	}
	s.Pending = append(s.Pending, p)
	return err
}

func request(values map[string]string) (*snapshot.Request, error) {
	r := &snapshot.Request{Priority: int32(number(values["priority"])), MaxSlowdownMilli: number(values["max-slowdown"]), MilliCPU: number(values["cpu"])}
	containers := listed(values["containers"], ',')
	if len(containers) == 0 {
		containers = []string{"main:" + values["slots"] + "/" + values["memory"]}
	}
	for _, c := range containers {
		name, share, _ := strings.Cut(c, ":")
		slots, memory, _ := strings.Cut(share, "/")
		bytes, err := amount(memory)
		if err != nil {
			return nil, err
		}
		r.Containers = append(r.Containers, snapshot.ContainerRequest{Name: name, Kind: "app", Slots: vgpu.Slots(number(slots)), MemoryBytes: bytes})
	}
	for _, m := range listed(values["models"], '|') {
		r.Models = append(r.Models, snapshot.ModelRequest{Model: m})
	}
	var err error
	r.MemoryBytes, err = amount(values["host-memory"])
	return r, err
}

// likelyEnds is a prediction that was made ten minutes ago, nil for none.
func likelyEnds(minutes []string, known int) *snapshot.Ends {
	if len(minutes) == 0 {
		return nil
	}
	e := &snapshot.Ends{At: at.Add(-10 * time.Minute), Known: known}
	for _, m := range minutes {
		e.AfterSeconds = append(e.AfterSeconds, 60*(10+number(m)))
	}
	return e
}

// amount reads bytes, "" for 0.
func amount(s string) (vgpu.Bytes, error) {
	if s == "" {
		return 0, nil
	}
	return testkit.ParseBytes(s)
}

// later is the time in some minutes, zero for "".
func later(minutes string) time.Time {
	if minutes == "" {
		return time.Time{}
	}
	return at.Add(time.Duration(number(minutes)) * time.Minute)
}

// spaced returns words that a line joins by underscores.
func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

// listed splits a list; an empty one is nil.
func listed(s string, sep rune) []string {
	if s == "" {
		return nil
	}
	return strings.FieldsFunc(s, func(r rune) bool { return r == sep })
}
