package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestAnswers: the screenshots say of the made-up clusters what their snapshots say, counted here by other means.
func TestAnswers(t *testing.T) {
	for _, gpus := range sizes {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			s := made{gpus}.snapshot(moments - 1)
			p, err := gpumap.Of(s)
			must.OK(t, err)
			answers := map[string]gpumap.Answer{}
			for _, a := range p.Answers {
				answers[a.Key] = a
			}
			sick, idle := sickAndIdle(s)
			if got := answers["sick"]; !slices.Equal(got.Tiles, sick) || !strings.Contains(got.Text, sick[0]) {
				t.Errorf("sick: %q %v, the snapshot has %v", got.Text, got.Tiles, sick)
			}
			if got := answers["idle"].Tiles; len(idle) == 0 || !slices.Equal(got, idle) {
				t.Errorf("idle: %v, the snapshot has %v", got, idle)
			}
			if worst := slowest(s); !strings.HasPrefix(answers["slow"].Text, worst) {
				t.Errorf("slow: %q, the snapshot has %s", answers["slow"].Text, worst)
			}
			if got := answers["waiting"].Text; !strings.HasPrefix(got, "Gang nlp/pretrain-7 ") || !strings.Contains(got, s.Gangs[0].Message) {
				t.Errorf("waiting: %q, the snapshot has %q", got, s.Gangs[0].Message)
			}
			room := answers["room"]
			if of8 := strings.HasPrefix(room.Text, "A pod of 8 whole GPUs"); of8 != (emptyNodes(s) > 0) || of8 && len(room.Nodes) != emptyNodes(s) {
				t.Errorf("room: %q %v, the snapshot has %d empty nodes", room.Text, room.Nodes, emptyNodes(s))
			}
		})
	}
}

// sickAndIdle returns devices of the snapshot, as the page names them.
func sickAndIdle(s *snapshot.Snapshot) (sick, idle []string) {
	for _, n := range s.Nodes {
		for i, d := range n.Devices {
			tile := fmt.Sprintf("%s/g%d", n.Name, i)
			if !d.Healthy {
				sick = append(sick, tile)
			}
			if slices.ContainsFunc(n.Pods, func(p snapshot.Pod) bool { return unused(&p, d.ID) }) {
				idle = append(idle, tile)
			}
		}
	}
	return sick, idle
}

func unused(p *snapshot.Pod, device vgpu.DeviceID) bool {
	return slices.ContainsFunc(p.On, func(on snapshot.On) bool { return on.Device == device && *on.SMPercent == 0 })
}

// slowest returns what the answer begins with: the pod with the largest slowdown, and where it is.
func slowest(s *snapshot.Snapshot) string {
	most, says := int64(0), ""
	for _, n := range s.Nodes {
		for i, d := range n.Devices {
			for _, p := range n.Pods {
				for _, on := range p.On {
					if on.Device == d.ID && on.SlowdownMilli > most {
						most, says = on.SlowdownMilli, fmt.Sprintf("%s on %s/g%d takes ", p.Path(), n.Name, i)
					}
				}
			}
		}
	}
	return says
}

// TestMade: the made-up clusters are what a scheduler could publish, and change over the hour.
func TestMade(t *testing.T) {
	for _, gpus := range sizes {
		m := made{gpus}
		all, err := m.Moments(context.Background())
		must.OK(t, err)
		pods := -1
		for _, second := range []int64{all.Seconds[0], all.Seconds[moments-1]} {
			s, err := m.At(context.Background(), second)
			must.OK(t, err)
			raw, err := snapshotjson.Write(s)
			must.OK(t, err)
			if _, err := snapshotjson.Read(raw); err != nil {
				t.Errorf("%d GPUs: %v", gpus, err)
			}
			if now := podsOf(s); now <= pods {
				t.Errorf("%d GPUs: %d pods at the end, %d at the start", gpus, now, pods)
			} else {
				pods = now
			}
		}
	}
}

func podsOf(s *snapshot.Snapshot) int {
	sum := 0
	for i := range s.Nodes {
		sum += len(s.Nodes[i].Pods)
	}
	return sum
}
