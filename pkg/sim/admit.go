package sim

import (
	"errors"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// validateAdmission returns with what Admits goes that does not ask it.
func (s *Setup) validateAdmission() error {
	elastic := func(j Job) bool { return j.Gang != nil && j.Gang.Elastic != nil }
	switch {
	case s.Admits == nil:
		return nil
	case s.Preemption.Policy != PreemptNobody:
		return errors.New("nodes admit some jobs only, which is legal without preemption only")
	case slices.ContainsFunc(s.Jobs, elastic):
		return errors.New("nodes admit some jobs only, which is legal without elastic gangs only")
	}
	return nil
}

// admits reports whether a node may take a job, apart from its devices and its room.
func (s *Setup) admits(job int, node string) bool {
	return s.Admits == nil || s.Admits(s.Jobs[job].Class, node)
}

// admitting returns the nodes that may take a job, apart from their devices and their room.
func (s *Setup) admitting(job int, nodes []*vgpu.Node) []*vgpu.Node {
	if s.Admits == nil {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), func(n *vgpu.Node) bool { return !s.admits(job, n.Name()) })
}

// admission makes a gang see only the nodes that admit its members.
func (s *Setup) admission(c *gang.Cluster) {
	if s.Admits == nil {
		return
	}
	c.Admits = func(kind, node int) int {
		if s.Admits(kind, c.Nodes[node].Name()) {
			return math.MaxInt32
		}
		return 0
	}
	c.Bars = func(kind, node int) string {
		if s.Admits(kind, c.Nodes[node].Name()) {
			return ""
		}
		return "node(s) did not admit the pod"
	}
}
