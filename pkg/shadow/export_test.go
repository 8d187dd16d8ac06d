package shadow

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Starts returns when the pods of the present period start in both worlds, from the begin of the period, by UID. Pods that do not start
// until now have no entry.
func (l *Log) Starts(now time.Time) (other, tandem map[vgpu.UID]time.Duration, err error) {
	p, err := l.play(now)
	if err != nil {
		return nil, nil, err
	}
	other, tandem = map[vgpu.UID]time.Duration{}, map[vgpu.UID]time.Duration{}
	for i := range p.members {
		uid := p.members[i].Request.UID
		if at := p.other.starts[i]; at != unset {
			other[uid] = at
		}
		if at := p.tandem.starts[i]; at != unset {
			tandem[uid] = at
		}
	}
	return other, tandem, nil
}

// Overbooked returns where the world of Tandem gives more of a device than it has at some moment of the present period, or a pod a node
// that does not admit it; "" for nowhere. It goes by the stays alone, without a ledger.
func (l *Log) Overbooked(now time.Time) string {
	c, until := l.cast(now), now.Sub(l.began)
	h, err := sim.Run(l.setup(c))
	if err != nil {
		return err.Error()
	}
	stays := c.played(h, until)
	for i := range stays {
		used := map[vgpu.DeviceID]vgpu.Slots{}
		for k := range stays {
			if s := &stays[k]; s.from <= stays[i].from && stays[i].from < s.to {
				for _, container := range s.assignment.Containers {
					for _, id := range container.Devices {
						used[id] += container.Share.Slots
					}
				}
			}
		}
		for id, slots := range used {
			if slots > 10 {
				return fmt.Sprintf("device %s has %d of 10 slots in use at %v", id, slots, stays[i].from)
			}
		}
		m := &c.members[stays[i].member]
		if names, some := l.inventory.Admits[m.Class]; some && !m.pinned && !slices.Contains(names, stays[i].assignment.Node) {
			return fmt.Sprintf("pod %s is on node %s, which does not admit it", m.Request.Pod, stays[i].assignment.Node)
		}
		if stays[i].from < m.created {
			return fmt.Sprintf("pod %s starts at %v and came at %v", m.Request.Pod, stays[i].from, m.created)
		}
	}
	return ""
}
