package experiment

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// configuration is a kind of job: a workload of one batch size and precision, with its measurement alone.
type configuration struct {
	name, family string
	profile      interference.Profile
}

// sharingTable is what is true of configurations that share a device.
type sharingTable struct {
	configs []configuration
	// speed of a configuration beside another: together ÷ alone, at most 1.
	speed [][]float64
	// excess is the memory that two hold together beyond what they hold alone.
	excess [][]vgpu.Bytes
}

// tableOfPairs returns the measured speeds of a set by configuration.
//
// The set has the configurations with measurements beside at least half of the others. If a pair has several
// measurements, their mean counts. Faster than alone counts as equally fast: the difference is noise. A pair without a
// measurement has the mean of the configuration beside the other's family, else of the two families, else of all
// measurements of the configuration. Two hold at least what they hold alone, and more where a measurement shows more.
func tableOfPairs(set *PairSet) (*sharingTable, error) {
	m, err := measure(set)
	if err != nil {
		return nil, err
	}
	m.dropRare()
	if len(m.table.configs) == 0 {
		return nil, errors.New("no configuration was measured beside half of the others")
	}
	t := &m.table
	for i := range t.configs {
		row := make([]float64, len(t.configs))
		for j := range row {
			row[j] = min(1, m.meanSpeed(i, j))
		}
		t.speed = append(t.speed, row)
	}
	return t, nil
}

// measuredPairs is a table with all measurements of each pair.
type measuredPairs struct {
	table  sharingTable
	speeds map[[2]int][]float64
	memory map[[2]int]vgpu.Bytes
}

func measure(set *PairSet) (*measuredPairs, error) {
	m := &measuredPairs{speeds: map[[2]int][]float64{}, memory: map[[2]int]vgpu.Bytes{}}
	known := map[string]*Side{}
	for p := range set.Pairs {
		for s := range set.Pairs[p].Sides {
			side := &set.Pairs[p].Sides[s]
			known[side.Workload] = side
		}
	}
	index := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		c, err := configurationOf(known[name])
		if err != nil {
			return nil, err
		}
		index[name] = len(m.table.configs)
		m.table.configs = append(m.table.configs, c)
	}
	for p := range set.Pairs {
		a, b := &set.Pairs[p].Sides[0], &set.Pairs[p].Sides[1]
		i, j := index[a.Workload], index[b.Workload]
		m.speeds[[2]int{i, j}] = append(m.speeds[[2]int{i, j}], a.Speed)
		m.speeds[[2]int{j, i}] = append(m.speeds[[2]int{j, i}], b.Speed)
		most := max(m.memory[[2]int{i, j}], set.Pairs[p].Memory)
		m.memory[[2]int{i, j}], m.memory[[2]int{j, i}] = most, most
	}
	return m, nil
}

// configurationOf returns the kind of job of one side of a pair.
func configurationOf(s *Side) (configuration, error) {
	switch {
	case s.Solo == nil:
		return configuration{}, fmt.Errorf("workload %q has no profile", s.Workload)
	case math.IsNaN(s.Solo.SM) || math.IsNaN(s.Solo.Bandwidth):
		return configuration{}, fmt.Errorf("the profile of workload %q does not say its GPU and memory utilisation", s.Workload)
	case s.Solo.Memory < 1 || s.Solo.Memory > sharedMemory:
		return configuration{}, fmt.Errorf("the profile of workload %q holds %d bytes of a device, legal is 1 to %d", s.Workload,
			s.Solo.Memory, sharedMemory)
	}
	c := configuration{name: s.Workload, family: s.Family, profile: interference.Profile{
		SM: s.Solo.SM, Bandwidth: s.Solo.Bandwidth, Memory: s.Solo.Memory,
	}}
	if s.Solo.Rate > 0 {
		c.profile.Step = float64(s.Solo.Batch) / s.Solo.Rate
	}
	return c, nil
}

// dropRare takes out the configurations with measurements beside less than half of the others.
func (m *measuredPairs) dropRare() {
	all := m.table.configs
	var kept []int
	for i := range all {
		others := 0
		for j := range all {
			if i != j && len(m.speeds[[2]int{i, j}]) > 0 {
				others++
			}
		}
		if 2*others >= len(all)-1 {
			kept = append(kept, i)
		}
	}
	next := measuredPairs{speeds: map[[2]int][]float64{}}
	for a, i := range kept {
		next.table.configs = append(next.table.configs, all[i])
		excess := make([]vgpu.Bytes, len(kept))
		for b, j := range kept {
			next.speeds[[2]int{a, b}] = m.speeds[[2]int{i, j}]
			excess[b] = max(0, m.memory[[2]int{i, j}]-all[i].profile.Memory-all[j].profile.Memory)
		}
		next.table.excess = append(next.table.excess, excess)
	}
	*m = next
}

// meanSpeed returns how fast a configuration is beside another.
func (m *measuredPairs) meanSpeed(i, j int) float64 {
	if measured := m.speeds[[2]int{i, j}]; len(measured) > 0 {
		return results.Mean(measured)
	}
	a, b := m.table.configs[i].family, m.table.configs[j].family
	for _, alike := range []func(p, q int) bool{
		func(p, q int) bool { return p == i && m.table.configs[q].family == b },
		func(p, q int) bool { return m.table.configs[p].family == a && m.table.configs[q].family == b },
		func(p, _ int) bool { return p == i },
	} {
		var speeds []float64
		for p := range m.table.configs {
			for q := range m.table.configs {
				if alike(p, q) {
					speeds = append(speeds, m.speeds[[2]int{p, q}]...)
				}
			}
		}
		if len(speeds) > 0 {
			return results.Mean(speeds)
		}
	}
	return 1 // a single configuration without a measurement beside itself
}

// speeds writes how fast each of the tenants of a device is: beside several, the product of what it reaches beside each.
func (t *sharingTable) speeds(tenants []sharedJob, out []float64) []float64 {
	out = out[:0]
	for i := range tenants {
		s := 1.0
		for j := range tenants {
			if i != j {
				s *= t.speed[tenants[i].config][tenants[j].config]
			}
		}
		out = append(out, s)
	}
	return out
}

// memory is what tenants hold together: what each holds alone, and what each pair of them holds beyond that.
func (t *sharingTable) memory(tenants []sharedJob) vgpu.Bytes {
	sum := vgpu.Bytes(0)
	for i := range tenants {
		sum += tenants[i].profile.Memory
		for j := range i {
			sum += t.excess[tenants[i].config][tenants[j].config]
		}
	}
	return sum
}
