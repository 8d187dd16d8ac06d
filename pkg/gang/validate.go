package gang

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Validate returns the error that Place and Drain return for input that contradicts itself, nil for none.
func Validate(c *Cluster, g *Group, cfg Config) error { return validate(c, g, cfg) }

// validate returns an error for input that contradicts itself.
func validate(c *Cluster, g *Group, cfg Config) error {
	if cfg.MaxDomains < 0 {
		return fmt.Errorf("the most domains to try are %d", cfg.MaxDomains)
	}
	for _, check := range []func() error{c.validate, g.validate, func() error { return g.Wishes.validate(c) }, g.validateLosses} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// validate checks that the nodes are in order.
func (c *Cluster) validate() error {
	for i := 1; i < len(c.Nodes); i++ {
		if c.Nodes[i-1].Name() >= c.Nodes[i].Name() {
			return fmt.Errorf("node %s comes after node %s", c.Nodes[i].Name(), c.Nodes[i-1].Name())
		}
	}
	return nil
}

// validate checks that a level says something about each node, and that its key is that of no other one.
func (l *Level) validate(c *Cluster) error {
	if len(l.Domain) != len(c.Nodes) {
		return fmt.Errorf("level %s knows %d nodes of %d", l.Key, len(l.Domain), len(c.Nodes))
	}
	for i, d := range l.Domain {
		if d < -1 || int(d) >= len(l.Names) {
			return fmt.Errorf("level %s: node %s is in domain %d of %d", l.Key, c.Nodes[i].Name(), d, len(l.Names))
		}
	}
	for i := range c.Levels {
		if o := &c.Levels[i]; o != l && o.Key == l.Key {
			return fmt.Errorf("level %s appears twice", l.Key)
		}
	}
	return nil
}

func (g *Group) validate() error {
	if g.MinCount < 1 {
		return fmt.Errorf("the least number of members is %d", g.MinCount)
	}
	if g.MinCount > len(g.Members)+len(g.Placed) {
		return fmt.Errorf("%d members want a place or have one, the least number is %d", len(g.Members)+len(g.Placed), g.MinCount)
	}
	seen := make(map[vgpu.UID]bool, len(g.Members)+len(g.Placed))
	note := func(uid vgpu.UID, pod string) error {
		switch {
		case uid == "":
			return fmt.Errorf("member %s has no UID", pod)
		case seen[uid]:
			return fmt.Errorf("member %s with UID %s appears twice", pod, uid)
		}
		seen[uid] = true
		return nil
	}
	for i := range g.Placed {
		if err := note(g.Placed[i].UID, g.Placed[i].Pod); err != nil {
			return err
		}
	}
	for i := range g.Members {
		m := &g.Members[i]
		if err := cmp.Or(note(m.Request.UID, m.Request.Pod), m.validate()); err != nil {
			return err
		}
	}
	return nil
}

func (m *Member) validate() error {
	if m.Request.Host.MilliCPU < 0 || m.Request.Host.Memory < 0 {
		return fmt.Errorf("member %s asks for %v of its host", m.Request.Pod, m.Request.Host)
	}
	if len(m.Request.Containers) == 0 {
		return nil
	}
	return m.Request.Validate()
}

// validate checks that each wish appears once, and the levels of the cluster that they name: it may have many others.
func (w *Wishes) validate(c *Cluster) error {
	for _, list := range [][]string{w.Required, w.Preferred} {
		for i, key := range list {
			switch l, there := c.find(key); {
			case key == "":
				return errors.New("a wish names no level")
			case slices.Contains(list[:i], key):
				return fmt.Errorf("level %s is listed twice", key)
			case there && key == NVLink:
				return fmt.Errorf("level %s is no label of nodes", key)
			case there:
				if err := l.validate(c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *Group) validateLosses() error {
	for i, l := range g.Losses {
		switch {
		case l.Level == "":
			return errors.New("a loss names no level")
		case l.Part < 0 || l.Part > vgpu.WholeGPU:
			return fmt.Errorf("loss %d on level %s, legal is 0 to %d", l.Part, l.Level, vgpu.WholeGPU)
		case slices.ContainsFunc(g.Losses[:i], func(o Loss) bool { return o.Level == l.Level }):
			return fmt.Errorf("level %s has two losses", l.Level)
		}
	}
	return nil
}

// level returns a level by its key: one without domains where no node has the label.
func (c *Cluster) level(key string) *Level {
	if l, there := c.find(key); there {
		return l
	}
	return &Level{Key: key}
}

func (c *Cluster) find(key string) (l *Level, there bool) {
	for i := range c.Levels {
		if c.Levels[i].Key == key {
			return &c.Levels[i], true
		}
	}
	return nil, false
}
