package sim_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// tell writes a line for each thing that happened.
func (s *story) tell() (string, error) {
	refusals, err := s.history.Refusals()
	if err != nil {
		return "", err
	}
	gangs, err := s.history.GangRefusals()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range s.history.Events() {
		o := &s.history.Outcomes[e.Job]
		name, state, why := o.Pod, o.State, fmt.Stringer(refusals[e.Job])
		i := slices.IndexFunc(s.history.Gangs, func(g sim.GangOutcome) bool { return g.Members[0] == e.Job })
		if i >= 0 && e.What != "starts" && e.What != "ends" && e.What != "left out" && e.What != "evicted" && e.What != "leaves" {
			name, state, why = "gang "+s.history.Gangs[i].Name, s.history.Gangs[i].State, gangs[i]
		}
		text := map[string]string{
			"starts": "→ " + s.next(e), "ends": "ends", "preempts": "has others evicted", "evicted": "is evicted", "leaves": "is gone",
			"returns": "waits again", "lets go": "has its room, or gives it up", "queued": "waits behind others", "drains": "has room kept", "left out": "is left out", "gives up": "has no room kept any more",
		}[e.What]
		if e.What == "refused" {
			text = map[bool]string{true: "is dropped: ", false: "waits: "}[state == sim.Dropped] + why.String()
		}
		fmt.Fprintf(&b, "%v %s %s\n", e.At, name, text)
	}
	s.decisions(&b)
	for _, g := range s.history.Gangs {
		fmt.Fprintf(&b, "gang %s: %v, %d attempts", g.Name, g.State, g.Attempts)
		if g.State.Placed() {
			fmt.Fprintf(&b, ", waited %v, spread %v", g.Wait(), g.Spread)
		}
		b.WriteString("\n")
		for _, size := range g.Sizes {
			fmt.Fprintf(&b, "  %v: %d members, speed %.2f from %v\n", size.At, size.Workers, size.Speed, size.Works)
		}
		if len(g.Sizes) > 0 {
			fmt.Fprintf(&b, "  moves at %v\n", g.Moves)
		}
	}
	last := s.history.Samples[len(s.history.Samples)-1]
	fmt.Fprintf(&b, "end: %d running, %d waiting, %d dropped; %v arrived, %v allocated, %v lost of %v\n", last.Running,
		last.Waiting, last.Dropped, last.Arrived, last.Allocated, last.Fragmentation, s.history.Capacity)
	return b.String(), nil
}

// next returns where a job goes: of one that starts more than once the last place is known only.
func (s *story) next(e sim.Event) string {
	if o := &s.history.Outcomes[e.Job]; o.Started == e.At {
		return place(o)
	}
	return "(later elsewhere)"
}

// decisions tells of each preemption, and what an audit says of all.
func (s *story) decisions(b *strings.Builder) {
	names := func(jobs []int) []string {
		all := make([]string, 0, len(jobs))
		for _, job := range jobs {
			all = append(all, s.history.Outcomes[job].Pod)
		}
		return all
	}
	for i := range s.history.Preemptions {
		p := &s.history.Preemptions[i]
		fmt.Fprintf(b, "%v for %s:", p.At, s.history.Outcomes[p.Job].Pod)
		for _, unit := range p.Evicted {
			fmt.Fprintf(b, " %v", names(unit))
		}
		fmt.Fprintf(b, ", fall %v, waits for %v, %d violations, lost %d\n", names(p.Fallen), names(p.Waits), p.Violations, p.Lost)
	}
	if s.history.Preempts() {
		audit, err := s.history.Audit()
		fmt.Fprintf(b, "audit: %+v %v\n", audit, err)
	}
}

func place(o *sim.Outcome) string {
	var devices []string
	for _, c := range o.Assignment.Containers {
		for _, id := range c.Devices {
			devices = append(devices, string(id))
		}
	}
	if devices == nil {
		return o.Assignment.Node
	}
	return strings.Join(devices, " ")
}

// mapAt returns the cluster at the moment that a command names.
func (s *story) mapAt(d *datadriven.TestData) (vgpu.Map, error) {
	var at string
	d.ScanArgs(s.t, "at", &at)
	moment, err := time.ParseDuration(at)
	if err != nil {
		return vgpu.Map{}, err
	}
	return s.history.MapAt(moment)
}

func (s *story) drawMap(d *datadriven.TestData) (string, error) {
	m, err := s.mapAt(d)
	if err != nil {
		return "", err
	}
	out, err := json.MarshalIndent(m, "", " ")
	return string(out) + "\n", err
}

func (s *story) waiting(d *datadriven.TestData) (string, error) {
	m, err := s.mapAt(d)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, n := range m.Nodes {
		for _, d := range n.Devices {
			for _, slice := range d.Slices {
				if slice.Held {
					fmt.Fprintf(&b, "%d slots of %s are kept for %s\n", slice.To-slice.From, d.ID, slice.Pod)
				}
			}
		}
	}
	for _, p := range m.Pending {
		fmt.Fprintf(&b, "%s (%s), %d members, %d slots, since %vs: %s\n", p.Pod, p.UID, p.Members, p.Slots, p.SinceSeconds, p.Reason)
	}
	return b.String(), nil
}

func (s *story) at(d *datadriven.TestData) (string, error) {
	var percent string
	d.ScanArgs(s.t, "percent", &percent)
	p := float64(whole(s.t, percent))
	allocated, ok := s.history.AllocatedAt(p)
	lost, also := s.history.FragmentationAt(p)
	if !ok || !also {
		return "not reached\n", nil
	}
	return fmt.Sprintf("%.2f %% allocated, %.2f %% lost\n", allocated, lost), nil
}

func (s *story) series(*datadriven.TestData) (string, error) {
	var b strings.Builder
	for _, sample := range s.history.Samples[max(0, len(s.history.Samples)-5):] {
		fmt.Fprintf(&b, "%v %d waiting, %v lost\n", sample.At, sample.Waiting, sample.Fragmentation)
	}
	return b.String(), nil
}

func (s *story) stats(d *datadriven.TestData) (string, error) {
	var words [2]string
	d.ScanArgs(s.t, "from", &words[0])
	d.ScanArgs(s.t, "to", &words[1])
	var window [2]time.Duration
	for i := range words {
		var err error
		if window[i], err = time.ParseDuration(words[i]); err != nil {
			return "", err
		}
	}
	h := s.history
	wait, _ := h.MeanWait()
	makespan, _ := h.Makespan()
	used, ok := h.Utilisation(window[0], window[1])
	median, _ := sim.Quantile(h.JCTs(), .5)
	return fmt.Sprintf("JCTs %v, median %v; mean wait %v; makespan %v; utilisation %.4f (%v)\n",
		h.JCTs(), median, wait, makespan, used, ok), nil
}
