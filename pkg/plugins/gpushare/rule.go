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
}

func (s *state) ruling() *rule { return s.rule.Load() }

// adopt makes the mix what further scheduling cycles go by.
func (p *Plugin) adopt(logger klog.Logger) {
	mix := p.usual()
	if now := p.state.ruling(); now != nil && now.mix == mix {
		return
	}
	p.state.rule.Store(&rule{Policy: p.policy, mix: mix})
	logger.V(2).Info("The usual requests changed", "kinds", len(mix.Kinds()), "weight", mix.Weight())
}
