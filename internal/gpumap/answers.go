package gpumap

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Answer is what the page says to a question.
type Answer struct {
	// Key is a word for the question: sick, slow, idle, waiting, room.
	Key string `json:"key"`
	// Text is a sentence or two.
	Text string `json:"text"`
	// Tiles are the devices that the answer is about, "node/device", and Nodes the nodes.
	Tiles []string `json:"tiles,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// named bounds what one answer names; the others are counted. More would push the map off small screens.
const named = 3

// usualSizes are the numbers of whole GPUs of one pod whose room the page tells.
var usualSizes = []int{8, 4, 2, 1}

func (p *Picture) answers() []Answer {
	return []Answer{p.sick(), p.slow(), p.idle(), p.waits(), p.room()}
}

// each calls a function for every device, with "node/device".
func (p *Picture) each(visit func(tile string, d *Device)) {
	for i := range p.Nodes {
		for k := range p.Nodes[i].Devices {
			d := &p.Nodes[i].Devices[k]
			visit(p.Nodes[i].Name+"/"+d.Name, d)
		}
	}
}

// sick says which devices take no work, and which nodes have a problem.
func (p *Picture) sick() Answer {
	a, says, cordons := Answer{Key: "sick"}, []string{}, []string{}
	p.each(func(tile string, d *Device) {
		if !d.Healthy {
			a.Tiles = append(a.Tiles, tile)
			if note, is := strings.CutPrefix(d.Reason, snapshot.Cordoned); is {
				cordons = append(cordons, withReason(tile, strings.TrimPrefix(note, ": ")))
			} else {
				says = append(says, withReason(tile, d.Reason))
			}
		}
	})
	a.Text = "No GPU is sick."
	if len(says) > 0 {
		a.Text = fmt.Sprintf("%s sick: %s.", isAre(len(says), "GPU"), list(says))
	}
	if len(cordons) > 0 {
		a.Text += fmt.Sprintf(" %s cordoned: %s.", isAre(len(cordons), "GPU"), list(cordons))
	}
	problems := []string{}
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Problem != "" {
			a.Nodes = append(a.Nodes, n.Name)
			problems = append(problems, withReason(n.Name, n.Problem))
		}
	}
	if len(problems) > 0 {
		a.Text += fmt.Sprintf(" %s no new pods: %s.", verb(len(problems), "node", "takes", "take"), list(problems))
	}
	return a
}

// slow says which pods their neighbours slow down, the worst first.
func (p *Picture) slow() Answer {
	type harm struct {
		tile, says string
		by         int64
	}
	var all []harm
	predicted := false
	p.each(func(tile string, d *Device) {
		for i := range d.Slices {
			s := &d.Slices[i]
			predicted = predicted || s.SlowdownMilli != 0
			if s.SlowdownMilli <= vgpu.NoSlowdown {
				continue
			}
			says := fmt.Sprintf("%s on %s takes %s times as long beside %s", s.Pod, tile, decimal(s.SlowdownMilli), neighbours(d, i))
			if s.MaxSlowdownMilli != 0 && s.SlowdownMilli > s.MaxSlowdownMilli {
				says += fmt.Sprintf(", and was promised %s", decimal(s.MaxSlowdownMilli))
			}
			all = append(all, harm{tile, says, s.SlowdownMilli})
		}
	})
	slices.SortStableFunc(all, func(a, b harm) int { return cmp.Compare(b.by, a.by) })
	a := Answer{Key: "slow"}
	for _, h := range all {
		a.Tiles = append(a.Tiles, h.tile)
	}
	a.Tiles = unique(a.Tiles)
	switch {
	case len(all) == 1:
		a.Text = fmt.Sprintf("%s, as predicted.", all[0].says)
	case len(all) > 1:
		a.Text = fmt.Sprintf("%s: the worst of %d predicted slowdowns.", all[0].says, len(all))
	case predicted:
		a.Text = "No pod slows another one down, as far as is predicted."
	default:
		a.Text = "No slowdown is predicted: the snapshot has no predictions."
	}
	return a
}

// neighbours names the pods beside a slice that are there.
func neighbours(d *Device, of int) string {
	says := []string{}
	for i := range d.Slices {
		if i != of && !d.Slices[i].Held {
			says = append(says, d.Slices[i].Pod)
		}
	}
	if len(says) == 0 {
		return "its earlier neighbours"
	}
	return list(says)
}

// idle says who has shares and did not use them when they were measured, the largest first.
func (p *Picture) idle() Answer {
	a, held, measured := Answer{Key: "idle"}, map[string]vgpu.Slots{}, false
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for k := range n.Devices {
			for _, s := range n.Devices[k].Slices {
				measured = measured || s.SMPercent != nil
				if s.Idle {
					a.Tiles = append(a.Tiles, n.Name+"/"+n.Devices[k].Name)
					held[s.Pod+" on "+n.Name] += s.To - s.From
				}
			}
		}
	}
	a.Tiles = unique(a.Tiles)
	pods, sum, says := slices.Sorted(maps.Keys(held)), vgpu.Slots(0), []string{}
	slices.SortStableFunc(pods, func(a, b string) int { return cmp.Compare(held[b], held[a]) })
	for _, pod := range pods {
		sum += held[pod]
		says = append(says, fmt.Sprintf("%s (%s)", pod, count(int(held[pod]), "slot")))
	}
	switch {
	case len(pods) > 0:
		a.Text = fmt.Sprintf("%s a part of what is allocated, %s: %s.", verb(len(pods), "pod", "does not use", "do not use"), count(int(sum), "slot"), list(says))
	case measured:
		a.Text = "Nothing that is allocated was idle when it was last measured."
	default:
		a.Text = "Nothing is known of idle shares: no use was measured."
	}
	return a
}

// waits says who waits longest, and why.
func (p *Picture) waits() Answer {
	a := Answer{Key: "waiting", Text: "Nothing waits for a GPU."}
	total := len(p.Waiting)
	if total == 0 {
		return a
	}
	w := &p.Waiting[0]
	who := "Pod " + w.Name
	if w.Members > 0 {
		who = fmt.Sprintf("Gang %s (%s)", w.Name, count(w.Members, "member"))
	}
	a.Text = fmt.Sprintf("%s waits longest: %s", who, w.Why)
	if total > 1 {
		a.Text = strings.TrimSuffix(a.Text, ".") + fmt.Sprintf(". %s.", verb(total-1, "other", "waits", "wait"))
	}
	return a
}

// room says where pods of usual sizes would fit: the largest that fits, and those that do not.
func (p *Picture) room() Answer {
	a, without := Answer{Key: "room"}, []string{}
	for _, size := range usualSizes {
		for i := range p.Nodes {
			if p.Nodes[i].WholeGPUs >= size {
				a.Nodes = append(a.Nodes, p.Nodes[i].Name)
			}
		}
		if len(a.Nodes) > 0 {
			a.Text = fmt.Sprintf("A pod of %s fits on %s.", count(size, "whole GPU"), list(a.Nodes))
			break
		}
		without = append(without, strconv.Itoa(size))
	}
	if len(without) > 0 {
		a.Text = strings.TrimSpace(a.Text + fmt.Sprintf(" No node has room for a pod of %s.", oneOf(without)))
	}
	a.Text += " CPU and memory of the hosts do not count here."
	return a
}

// oneOf writes "8 whole GPUs" and "8, 4 or 2 whole GPUs".
func oneOf(sizes []string) string {
	last := len(sizes) - 1
	if last == 0 {
		return sizes[0] + " whole GPUs"
	}
	return fmt.Sprintf("%s or %s whole GPUs", strings.Join(sizes[:last], ", "), sizes[last])
}

// list names the first things and counts the others.
func list(all []string) string {
	if len(all) <= named {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:named], ", "), len(all)-named)
}

func withReason(what, reason string) string {
	if reason == "" {
		return what
	}
	return fmt.Sprintf("%s (%s)", what, reason)
}

func isAre(n int, what string) string { return verb(n, what, "is", "are") }

// verb writes "1 node takes" and "2 nodes take".
func verb(n int, what, one, many string) string {
	if n == 1 {
		return count(n, what) + " " + one
	}
	return count(n, what) + " " + many
}

// decimal writes thousandths with two decimals, rounded to the nearest.
func decimal(milli int64) string { return fmt.Sprintf("%d.%02d", (milli+5)/1000, (milli+5)%1000/10) }

// unique leaves repeated entries out and keeps the order.
func unique(all []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(s string) bool {
		double := seen[s]
		seen[s] = true
		return double
	})
}
