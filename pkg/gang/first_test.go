package gang_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/gang"
)

func TestX(t *testing.T) {
	c, cfg := hall(t, 80, 10), usual(t)
	for _, g := range []*gang.Group{company(40, 10, []string{"rack"}, []string{"host"}), company(60, 10, []string{"rack"}, []string{"host"}), company(8, 10, []string{"nvlink"}, []string{"host"}), company(65, 10, []string{"rack"}, nil), company(3,5,[]string{"nvlink"},nil)} {
		plan, err := gang.Place(c, g, cfg)
		fmt.Println(plan.Refused, err, plan.Stats, plan.Spread)
		plan, err = gang.Drain(c, g, cfg)
		fmt.Println(plan.Refused, err, plan.Stats, plan.Spread)
	}
}
