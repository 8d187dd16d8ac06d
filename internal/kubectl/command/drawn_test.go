package command_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// at is the moment of all drawn snapshots.
var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestDrawn runs commands on drawn clusters. The input of "cluster" draws one as testkit reads it; lines below "----" in it add what a
// drawing cannot say:
//
//	pod NAME priority=N gang=G max-slowdown=N ends=MINUTES
//	node NAME problem=WORDS
//	pending NAME slots=N memory=8Gi priority=N gang=G models=A|B max-slowdown=N minutes=N refused=REASON:N,…
//	gang NAME min=N members=N bound=N phase=P need=N message=WORDS waits=MINUTES places=POD@NODE,…
//	target NAME workers=N min=N max=N reason=WORD
//	preemption GANG victim=POD
//	on POD device=ID sm=N used=3Gi slowdown=N rate=N
//
// The input of "tandem" is a command line.
func TestDrawn(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var raw string
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				s, err := drawn(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				if d.HasArg("redacted") {
					s = s.Redact(func(namespace string) bool { return namespace == "a" })
				}
				written, err := snapshotjson.Write(s)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				raw = string(written)
				return ""
			case "tandem":
				code, out, errs := run(raw, append(strings.Fields(d.Input), "--snapshot", "-", "--kubeconfig", "/dev/null")...)
				if code != 0 {
					return fmt.Sprintf("%s%sexit code %d\n", out, errs, code)
				}
				return out + errs
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

// drawn reads the input of "cluster".
func drawn(input string) (*snapshot.Snapshot, error) {
	drawing, more, _ := strings.Cut(input, "more:\n")
	c, err := testkit.Parse(drawing)
	if err != nil {
		return nil, err
	}
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at}
	for _, n := range c.Nodes() {
		s.Nodes = append(s.Nodes, snapshot.NodeOf(n))
	}
	for _, line := range strings.Split(strings.TrimSpace(more), "\n") {
		if err := add(s, strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	s.Sort()
	return s, s.Check()
}

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
	switch name := words[1]; words[0] {
	case "node":
		for i := range s.Nodes {
			if s.Nodes[i].Name == name {
				s.Nodes[i].Problem = strings.ReplaceAll(values["problem"], "_", " ")
			}
		}
	case "pod":
		for i := range s.Nodes {
			for k := range s.Nodes[i].Pods {
				if p := &s.Nodes[i].Pods[k]; p.Path() == name {
					p.Priority, p.Gang = int32(number(values["priority"])), gangOf(values["gang"])
					p.MaxSlowdownMilli = number(values["max-slowdown"])
					if values["ends"] != "" {
						p.EndsBy = at.Add(time.Duration(number(values["ends"])) * time.Minute)
					}
				}
			}
		}
	case "gang":
		g := snapshot.Gang{
			GangName: *gangOf(name), MinCount: int(number(values["min"])), Members: int(number(values["members"])), Bound: int(number(values["bound"])),
			Phase: values["phase"], Need: values["need"], Message: strings.ReplaceAll(values["message"], "_", " "),
		}
		if values["waits"] != "" {
			g.WaitsSince = at.Add(-time.Duration(number(values["waits"])) * time.Minute)
		}
		for _, place := range strings.FieldsFunc(values["places"], func(r rune) bool { return r == ',' }) {
			pod, node, _ := strings.Cut(place, "@")
			g.Places = append(g.Places, snapshot.Place{Name: snapshot.NameOf(pod, vgpu.UID(pod)), Node: node})
		}
		s.Gangs = append(s.Gangs, g)
	case "target":
		s.ElasticTargets = append(s.ElasticTargets, snapshot.ElasticTarget{
			GangName: *gangOf(name), Workers: int(number(values["workers"])), Min: int(number(values["min"])), Max: int(number(values["max"])), Reason: values["reason"],
		})
	case "preemption":
		p := snapshot.Preemption{Gang: gangOf(name), Phase: "Leaving", Victims: []snapshot.Place{{Name: snapshot.NameOf(values["victim"], vgpu.UID(values["victim"]))}}}
		s.Preemptions = append(s.Preemptions, p)
	case "on":
		return addOn(s, name, values)
	case "pending":
		p, err := pending(name, values)
		if err != nil {
			return err
		}
		s.Pending = append(s.Pending, *p)
	default:
		return fmt.Errorf("unknown word %s", words[0])
	}
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

func pending(name string, values map[string]string) (*snapshot.Pending, error) {
	p := &snapshot.Pending{Name: snapshot.NameOf(name, vgpu.UID(name)), Gang: gangOf(values["gang"]), Since: at.Add(-time.Duration(number(values["minutes"])) * time.Minute)}
	c := snapshot.ContainerRequest{Name: "main", Kind: "app", Slots: vgpu.Slots(number(values["slots"]))}
	if values["memory"] != "" {
		m, err := testkit.ParseBytes(values["memory"])
		if err != nil {
			return nil, err
		}
		c.MemoryBytes = m
	}
	p.Request = &snapshot.Request{Priority: int32(number(values["priority"])), Containers: []snapshot.ContainerRequest{c}, MaxSlowdownMilli: number(values["max-slowdown"]), MilliCPU: number(values["cpu"])}
	for _, m := range strings.FieldsFunc(values["models"], func(r rune) bool { return r == '|' }) {
		p.Request.Models = append(p.Request.Models, snapshot.ModelRequest{Model: m})
	}
	if values["refused"] == "never" {
		return p, nil
	}
	p.Refused = &snapshot.Refused{Message: strings.ReplaceAll(values["message"], "_", " ")}
	for _, r := range strings.FieldsFunc(values["refused"], func(r rune) bool { return r == ',' }) {
		reason, n, _ := strings.Cut(r, ":")
		p.Refused.Nodes = append(p.Refused.Nodes, snapshot.RefusedNodes{Reason: reason, Nodes: int(number(n))})
	}
	return p, nil
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
