package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// phase is a set of workers that stay during the measurements of their pairs and triples: the start of a client fixes
// its percentage.
type phase struct {
	name string
	// percents of the members of a co-run; 0 sets none. Without mps they take turns.
	percents []int
	mps      bool
	// solo has each workload measured alone too.
	solo bool
}

// isolation measures what neighbours do to each other.
func (s *suite) isolation() error {
	if err := s.features(load.Kinds()); err != nil {
		return err
	}
	for _, p := range []phase{
		{name: "time-slicing", percents: []int{0, 0}, solo: true},
		{name: "mps-50-50", percents: []int{50, 50}, mps: true, solo: true},
		{name: "mps-30-70", percents: []int{30, 70}, mps: true, solo: true},
		{name: "mps-10-90", percents: []int{10, 90}, mps: true, solo: true},
		{name: "mps-100-100", percents: []int{0, 0}, mps: true, solo: true},
		{name: "mps-33-33-33", percents: []int{33, 33, 33}, mps: true, solo: true},
		{name: "time-slicing-3", percents: []int{0, 0, 0}},
	} {
		if err := s.corun("isolation", p, load.Kinds(), load.Units); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// features takes what NVML shows of each kind alone: what the shipped model predicts from.
func (s *suite) features(kinds []string) error {
	library, err := nvml.Open()
	if err != nil {
		return err
	}
	defer func() { _ = library.Close() }()
	for _, kind := range kinds {
		name := "features/" + kind
		if !s.anyDue(name+"/sm", name+"/bandwidth", name+"/memory") {
			continue
		}
		w, err := s.start(kind)
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { _, err := w.run(s.of(2 * time.Second)); done <- err }()
		time.Sleep(s.of(time.Second))
		var sm, bandwidth, memory []float64
		for range 5 {
			time.Sleep(s.of(170 * time.Millisecond))
			v, err := library.Sample(s.uuid)
			if err != nil {
				return err
			}
			sm, bandwidth, memory = append(sm, v.SM), append(bandwidth, v.MemoryBandwidth), append(memory, float64(v.MemoryUsed)/mebibyte)
		}
		if err := <-done; err != nil {
			return err
		}
		s.keep(name+"/sm", record.Figure{What: "NVML's utilisation.gpu of the workload alone, without MPS", Unit: "of 1", Values: sm})
		s.keep(name+"/bandwidth", record.Figure{What: "NVML's utilisation.memory of the workload alone, without MPS", Unit: "of 1", Values: bandwidth})
		s.keep(name+"/memory", record.Figure{What: "device memory used while the workload runs alone", Unit: "MiB", Values: memory})
		w.quit()
	}
	return nil
}

// corun measures all pairs, or triples, of kinds in a phase, and each kind alone with each of the phase's percentages.
func (s *suite) corun(part string, p phase, kinds []string, units func(string) string) error {
	groups := combinations(kinds, p.percents)
	names := make([]string, 0, len(groups))
	for _, g := range groups {
		names = append(names, s.nameOf(part, p, g)+"/1")
	}
	if !s.anyDue(names...) || p.mps && s.leftOut(part+" "+p.name) {
		return nil
	}
	var d *daemon
	if p.mps {
		var err error
		if d, err = s.newDaemon(mps.DeviceSpec{}, true); err != nil {
			return err
		}
	}
	defer s.clean()
	// workers[i] are those that can be a group's member i, by kind.
	workers := make([]map[string]*worker, len(p.percents))
	for i, percent := range p.percents {
		workers[i] = map[string]*worker{}
		for _, kind := range kinds {
			var env []string
			if p.mps {
				env = d.env(percent, "")
			}
			w, err := s.launch(kind, env, nil)
			if err != nil {
				return err
			}
			w.percent = percent
			workers[i][kind] = w
		}
	}
	for _, set := range workers {
		for _, kind := range kinds {
			if err := set[kind].await(4 * patience); err != nil {
				return err
			}
		}
	}
	if p.solo {
		seen := map[int]bool{}
		for i, percent := range p.percents {
			if seen[percent] {
				continue
			}
			seen[percent] = true
			for _, kind := range kinds {
				s.group(s.soloName(part, p, kind, percent), "throughput alone", []*worker{workers[i][kind]}, units)
			}
		}
	}
	for _, g := range groups {
		members := make([]*worker, len(g))
		for i, kind := range g {
			members[i] = workers[i][kind]
		}
		s.group(s.nameOf(part, p, g), "throughput together", members, units)
	}
	return nil
}

func (s *suite) nameOf(part string, p phase, group []string) string {
	return part + "/" + p.name + "/" + strings.Join(group, "+")
}

func (s *suite) soloName(part string, p phase, kind string, percent int) string {
	if percent > 0 {
		return fmt.Sprintf("%s/%s/alone/%s@%d", part, p.name, kind, percent)
	}
	return fmt.Sprintf("%s/%s/alone/%s", part, p.name, kind)
}

// group measures workers together: the rate of each, and the 99th percentile of the time of a unit.
func (s *suite) group(name, what string, members []*worker, units func(string) string) {
	if !s.due(name + "/1") {
		return
	}
	rates, tails := make([]record.Figure, len(members)), make([]record.Figure, len(members))
	for range s.repeat {
		replies, err := together(members, s.window)
		for i, w := range members {
			rates[i].What, rates[i].Unit = fmt.Sprintf("%s: member %d, %s", what, i+1, w.kind), units(w.kind)
			tails[i].What, tails[i].Unit = fmt.Sprintf("99th percentile of the time of a unit: member %d, %s", i+1, w.kind), "ms"
			if err != nil {
				rates[i].Error = err.Error()
				continue
			}
			rates[i].Values = append(rates[i].Values, replies[i].Rate())
			tails[i].Values = append(tails[i].Values, replies[i].P99)
		}
		if err != nil {
			break
		}
	}
	for i := range members {
		if rates[i].Error == "" {
			s.keep(fmt.Sprintf("%s/%d/p99", name, i+1), tails[i])
		}
	}
	for i := len(members) - 1; i >= 0; i-- { // the first last: it says that the group is whole
		s.keep(fmt.Sprintf("%s/%d", name, i+1), rates[i])
	}
}

// combinations of kinds for members with the given percentages: where those are equal, the order does not matter.
func combinations(kinds []string, percents []int) [][]string {
	groups := [][]string{nil}
	for i := range percents {
		var next [][]string
		for _, g := range groups {
			for k, kind := range kinds {
				if i > 0 && percents[i] == percents[i-1] && k < index(kinds, g[i-1]) {
					continue
				}
				next = append(next, append(append([]string{}, g...), kind))
			}
		}
		groups = next
	}
	return groups
}

func index(kinds []string, kind string) int {
	for i, k := range kinds {
		if k == kind {
			return i
		}
	}
	return -1
}
