package gpushare

import (
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

// rule is what nodes and devices are chosen by for a time: the policy with the mix of usual requests. It is immutable;
// scores of different rules do not compare.
type rule struct {
	placement.Policy
	mix *fragmentation.Mix
	// typical is the part of the mix that the metric of fragmentation is about.
	typical *fragmentation.Mix
}

// typicalPercent is the part of all pods whose kinds count in the metric of fragmentation, by CPU and not by memory, as
// published (Weng et al., USENIX ATC 2023): the others are rarities that nobody keeps room for.
const typicalPercent = 95

func (s *state) ruling() *rule { return s.rule.Load() }

// adopt makes the mix what further scheduling cycles go by.
func (p *Plugin) adopt(logger klog.Logger) {
	mix := p.usual()
	if now := p.state.ruling(); now != nil && now.mix == mix {
		return
	}
	p.state.rule.Store(&rule{
		Policy: p.policy.With(mix, p.seed), mix: mix, typical: mix.WithoutMemory().Typical(typicalPercent),
	})
	logger.V(2).Info("The usual requests changed", "kinds", len(mix.Kinds()), "weight", mix.Weight())
}
