package testkit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// candidates reads the cost of evictions: a line per budget ("budget web allowed=1"), per gang ("gang job min=2") and
// per pod. A pod's line has this order: "a priority=10 serving slow lost=60000 guard=Protected budget=web gang=job leaving
// stays cpu=2 never-preempts". A "prices" line: see readPrices. "job-*" is all pods with assignments whose names start so, node=n1 a pod without devices. Pods that no
// line names have the priority 0 and nothing else, those that stay are none of the candidates.
func (s *Script) candidates(l *line) (string, error) {
	s.victims, s.prices = &preemption.Candidates{}, preemption.Prices{}
	stay := map[string]bool{}
	for _, n := range s.cluster.Nodes() {
		n.Each(func(a *vgpu.Assignment) {
			p := preemption.Pod{UID: a.UID, Name: a.Pod, Node: n.Name(), Host: s.asked[a.UID], Gang: -1}
			for c := range a.Containers {
				of := &a.Containers[c]
				p.Share += vgpu.MilliGPU(of.Share.Slots) * vgpu.WholeGPU * vgpu.MilliGPU(of.Share.Devices) / vgpu.MilliGPU(n.Devices()[n.Index(of.Devices[0])].Slots)
			}
			s.victims.Pods = append(s.victims.Pods, p)
		})
	}
	for _, text := range strings.Split(strings.TrimSpace(l.input), "\n") {
		words := strings.Fields(text)
		if err := s.candidate(words, stay); err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
	}
	s.victims.Pods = slices.DeleteFunc(s.victims.Pods, func(p preemption.Pod) bool { return stay[p.Name] })
	return fmt.Sprintf("%d pods, %d gangs, %d budgets\n", len(s.victims.Pods), len(s.victims.Gangs), len(s.victims.Budgets)), nil
}

// candidate reads one line.
func (s *Script) candidate(words []string, stay map[string]bool) (err error) {
	if len(words) == 0 {
		return nil
	}
	if len(words) == 3 && (words[0] == "budget" || words[0] == "gang") {
		_, value, _ := strings.Cut(words[2], "=")
		n, err := strconv.Atoi(value)
		if words[0] == "budget" {
			s.victims.Budgets = append(s.victims.Budgets, preemption.Budget{Name: words[1], Allowed: n})
		} else {
			s.victims.Gangs = append(s.victims.Gangs, preemption.Gang{Name: words[1], MinCount: n})
		}
		return err
	}
	if words[0] == "prices" {
		return s.readPrices(words[1:])
	}
	name, many := strings.CutSuffix(words[0], "*")
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "node=") }); i > 0 {
		s.victims.Pods = append(s.victims.Pods, preemption.Pod{UID: vgpu.UID(name), Name: name, Node: words[i][len("node="):], Gang: -1})
	}
	found := false
	for i := range s.victims.Pods {
		if p := &s.victims.Pods[i]; p.Name == name || many && strings.HasPrefix(p.Name, name) {
			found = true
			for _, w := range words[1:] {
				if err := s.trait(p, w, stay); err != nil {
					return err
				}
			}
		}
	}
	if !found {
		return fmt.Errorf("no such pod")
	}
	return nil
}

// readPrices reads what harms cost, each as a time of one GPU: "prices violation=24h step=1h broken=1h serving=24h
// victim=1m", or "prices default". Without such a line they cost nothing.
func (s *Script) readPrices(words []string) error {
	for _, w := range words {
		if w == "default" {
			s.prices = preemption.DefaultPrices()
			continue
		}
		key, value, _ := strings.Cut(w, "=")
		price, known := map[string]*int64{
			"violation": &s.prices.Violation, "step": &s.prices.Step, "broken": &s.prices.Broken, "serving": &s.prices.Serving, "victim": &s.prices.Victim,
		}[key]
		d, err := time.ParseDuration(value)
		if !known || err != nil {
			return fmt.Errorf("unknown price %q", w)
		}
		*price = int64(vgpu.WholeGPU) * int64(d/time.Second)
	}
	return nil
}

// trait reads one word about a pod. Lost work is a number of thousandths of a GPU times seconds, or a time of all that
// the pod has of GPUs.
func (s *Script) trait(p *preemption.Pod, w string, stay map[string]bool) (err error) {
	key, value, _ := strings.Cut(w, "=")
	switch key {
	case "serving":
		p.Serving = true
	case "slow":
		p.Slow = true
	case "leaving":
		p.Leaving = true
	case "stays":
		stay[p.Name] = true
	case "priority":
		var n int64
		n, err = strconv.ParseInt(value, 10, 32)
		p.Priority = int32(n)
	case "lost":
		if d, wrong := time.ParseDuration(value); wrong == nil && value != "0" {
			p.Lost = int64(p.Share) * int64(d/time.Second)
		} else {
			p.Lost, err = strconv.ParseInt(value, 10, 64)
		}
	case "never-preempts":
		p.NeverPreempts = true
	case "guard":
		p.Guard = preemption.Guard(value)
	case "cpu":
		p.Host.MilliCPU, err = parseCPU(value)
	case "budget":
		at := slices.IndexFunc(s.victims.Budgets, func(b preemption.Budget) bool { return b.Name == value })
		p.Budgets = append(p.Budgets, at)
		err = known(at, w)
	case "gang":
		p.Gang = slices.IndexFunc(s.victims.Gangs, func(g preemption.Gang) bool { return g.Name == value })
		err = known(p.Gang, w)
	case "node":
	default:
		err = fmt.Errorf("unknown word %q", w)
	}
	return err
}

func known(at int, w string) error {
	if at < 0 {
		return fmt.Errorf("no line before says what %s is", w)
	}
	return nil
}

// preempt says who makes room for a pod or a gang. The cluster stays as it is.
func (s *Script) preempt(l *line) (string, error) {
	g, err := s.preemptor(l)
	if err != nil {
		return "", err
	}
	if s.victims == nil {
		if _, err := s.candidates(&line{}); err != nil {
			return "", err
		}
	}
	cfg := preemption.Config{Config: s.gangConfig(l), KeepBudgets: l.keep, Prices: s.prices}
	plan, err := preemption.Victims(s.together(), g, s.victims, cfg)
	if err != nil {
		return "", err
	}
	if plan.Refused != nil {
		return fmt.Sprintf("pends: %s (%s)\n", plan.Refused.Text, plan.Refused.Reason), nil
	}
	out := plan.Words(s.victims) + "\n" + drawPlan(&gang.Plan{Places: plan.Places})
	if plan.Stats.Cut {
		return out + "(cut)\n", nil
	}
	return strings.TrimRight(out, "\n") + "\n", nil
}

// preemptor reads a gang as group does, or a pod where the line has no members.
func (s *Script) preemptor(l *line) (*gang.Group, error) {
	if l.gang.members > 0 || strings.TrimSpace(l.input) != "" {
		return s.group(l)
	}
	return &gang.Group{Name: l.request.Pod, Members: []gang.Member{{Request: l.request}}, MinCount: 1}, nil
}
