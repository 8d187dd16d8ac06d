package preemption

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Words describes what a plan does, for events: "evicts 2 pods: team/a-0, team/b-1 (surplus of team/b); costs 1.5
// GPU-hours, of which lost work is 30 GPU-minutes"; "evicts no pod, waits for team/c to leave". The candidates must be those of the plan. For a refused plan it is the text of the
// refusal.
func (p *Plan) Words(candidates *Candidates) string {
	switch {
	case p.Refused != nil:
		return p.Refused.Text
	case len(p.Evict) == 0 && len(p.Waits) == 0:
		return "evicts no pod: there is room"
	}
	text := "evicts no pod"
	if len(p.Evict) > 0 {
		text = "evicts " + count(p.Cost.Victims) + ": " + list(p.Evict, candidates)
	}
	if len(p.Waits) > 0 {
		names := make([]string, 0, len(p.Waits))
		for _, i := range p.Waits {
			names = append(names, candidates.Pods[i].Name)
		}
		text += ", waits for " + firstNames(names) + " to leave"
	}
	return text + p.Cost.words()
}

// words says what a plan costs, nothing below a second of a GPU.
func (c *Cost) words() string {
	price, lost := work(c.Price), work(c.Lost)
	switch {
	case c.Price < int64(vgpu.WholeGPU):
		return ""
	case c.Lost < int64(vgpu.WholeGPU) || lost == price:
		return "; costs " + price
	}
	return "; costs " + price + ", of which lost work is " + lost
}

// work describes an amount of work in thousandths of a GPU times seconds: "1.5 GPU-hours", "30 GPU-minutes", "12
// GPU-seconds".
func work(amount int64) string {
	for _, unit := range []struct {
		name string
		of   int64
	}{{"hour", GPUHour}, {"minute", GPUHour / 60}, {"second", int64(vgpu.WholeGPU)}} {
		if amount < unit.of {
			continue
		}
		text := strings.TrimSuffix(strconv.FormatFloat(float64(amount)/float64(unit.of), 'f', 1, 64), ".0") + " GPU-" + unit.name
		if strings.HasPrefix(text, "1 ") {
			return text
		}
		return text + "s"
	}
	return "nothing"
}

// count writes a number of pods.
func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return strconv.Itoa(pods) + " pods"
}

// maxNames is the number of names that a text lists. A larger number makes events longer than people read.
const maxNames = 8

// firstNames lists the first of the names, and counts the others.
func firstNames(names []string) string {
	text := strings.Join(names[:min(maxNames, len(names))], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// list names units: "team/a-0, team/b-1 (surplus of team/b), team/c (gang of 4)".
func list(units []Unit, candidates *Candidates) string {
	names := make([]string, 0, len(units))
	for i := range units {
		names = append(names, units[i].words(candidates))
	}
	return firstNames(names)
}

func (u *Unit) words(candidates *Candidates) string {
	switch u.Kind {
	case Surplus:
		return u.Name + " (surplus of " + candidates.Gangs[candidates.Pods[u.Pods[0]].Gang].Name + ")"
	case Whole:
		return fmt.Sprintf("%s (gang of %d)", u.Name, len(u.Pods))
	}
	return u.Name
}
