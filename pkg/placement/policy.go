package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Policy says which of the devices that fit is preferred. It is a value chosen once, by ByName; the zero value is
// packed.
type Policy struct {
	// Name as in ByName.
	Name string
	// device rates device d, on which left remains free once the pod is there: 0 to rateMax, higher is preferred.
	device func(d *vgpu.Device, left vgpu.Use) int64
	// node rates a node by what is taken of it, to break ties of device: 0 to rateMax, higher is preferred.
	node func(taken, of vgpu.Slots) int64
}

// rateMax is the highest rate that a policy gives: rates are parts per million of a device or a node.
const rateMax = 1_000_000

// policies by name order.
var policies = []Policy{bestFit, packed, spread}

// Policies returns the names that ByName knows, sorted.
func Policies() []string {
	names := make([]string, 0, len(policies))
	for _, p := range policies {
		names = append(names, p.Name)
	}
	return names
}

// ByName returns the policy with a name of Policies.
func ByName(name string) (Policy, error) {
	i := slices.IndexFunc(policies, func(p Policy) bool { return p.Name == name })
	if i < 0 {
		return Policy{}, fmt.Errorf("choose policy: unknown name %q, known are %s", name, strings.Join(Policies(), ", "))
	}
	return policies[i], nil
}

// orDefault returns the policy, packed for the zero value.
func (p Policy) orDefault() Policy {
	if p.device == nil {
		return packed
	}
	return p
}

// part returns a part of a whole in parts per million, rounded down. Example: 3 of 10 slots are 300000.
func part[T ~int64](amount, whole T) int64 {
	if whole <= 0 {
		return 0
	}
	if whole > 1<<40 { // memory beyond a TiB: keep the product within 64 bits
		amount, whole = amount>>20, whole>>20
	}
	return int64(amount) * rateMax / int64(whole)
}
