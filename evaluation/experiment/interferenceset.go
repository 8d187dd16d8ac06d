package experiment

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PairSet is the pairs of one layout and GPU model.
type PairSet struct {
	Layout csvtable.Format
	GPU    string
	Pairs  []Pair
	// NoFit counts the pairs that do not fit in the memory of the device, and Dropped those of a family whose
	// measurements are wrong. OtherSets counts those of another measurement in the same file. Pairs has none of them.
	NoFit, Dropped, OtherSets int
}

// Pair is one co-run.
type Pair struct {
	Sides [2]Side
	// Memory that both held together, 0 where the file does not say it.
	Memory vgpu.Bytes
}

// Side is one of the two workloads of a pair.
type Side struct {
	measurements.CoRunner
	// Solo is its profile, nil if the layout or the caller has none.
	Solo *measurements.Solo
}

func (c *Pair) of(family string) bool {
	return c.Sides[0].Family == family || c.Sides[1].Family == family
}

func (c *Pair) speeds() [2]float64 { return [2]float64{c.Sides[0].Speed, c.Sides[1].Speed} }

// Name says which set it is: "gavel-pairs on k80".
func (s *PairSet) Name() string { return fmt.Sprintf("%s on %s", s.Layout, s.GPU) }

func (s *PairSet) counted(named bool) results.InterferencePairs {
	c := results.InterferencePairs{Measured: len(s.Pairs), NoFit: s.NoFit, Dropped: s.Dropped, OtherSets: s.OtherSets}
	if named {
		c.Layout, c.GPU = string(s.Layout), s.GPU
	}
	return c
}

// soloLayouts says in which layout the solo profiles of a layout of pairs come.
var soloLayouts = map[csvtable.Format]csvtable.Format{
	measurements.LucidPairs: measurements.LucidSingles, measurements.IgniterPairs: measurements.IgniterCurves,
	measurements.TandemPairs: measurements.TandemSingles,
}

// wrongFamilies lists families by layout whose measurements are wrong. The solo speed of VGG in Lucid's files is that
// of another configuration, so that it seems to run half again as fast beside a neighbour.
var wrongFamilies = map[csvtable.Format]string{measurements.LucidPairs: "VGG"}

// PairSets sorts co-runs by layout and GPU, of the measurement that is named where a file has several, and gives each
// side its profile. An error names a file without pairs, one without profiles, or a workload without a profile where
// other workloads of its layout have one.
func PairSets(pairs, profiles []*measurements.File, measurement string) ([]PairSet, error) {
	solos, err := solosOf(profiles)
	if err != nil {
		return nil, err
	}
	byName := map[string]*PairSet{}
	for _, t := range pairs {
		if len(t.CoRuns) == 0 {
			return nil, fmt.Errorf("%v: it has no pairs of workloads that were measured together", t)
		}
		for i := range t.CoRuns {
			c := &t.CoRuns[i]
			set := &PairSet{Layout: t.Format, GPU: c.GPU}
			if known := byName[set.Name()]; known != nil {
				set = known
			}
			byName[set.Name()] = set
			if err := set.add(c, measurement, solos); err != nil {
				return nil, fmt.Errorf("%s line %d: %w", t.File, c.Line, err)
			}
		}
	}
	var sets []PairSet
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if s := byName[name]; len(s.Pairs) > 0 {
			sets = append(sets, *s)
		}
	}
	if len(sets) == 0 {
		return nil, nothingLeft(pairs, measurement)
	}
	return sets, nil
}

// nothingLeft says why no pair is used.
func nothingLeft(pairs []*measurements.File, measurement string) error {
	all := setsOf(pairs)
	if !slices.Contains(all, "") && !slices.Contains(all, measurement) {
		return fmt.Errorf("no pair is of the measurement %q, legal is one of %s", measurement, strings.Join(all, ", "))
	}
	return errors.New("no pair is left: they do not fit in the memory of their device, or their speed alone is wrong")
}

// setsOf returns the names of the sets of measurements in the files, in order.
func setsOf(pairs []*measurements.File) []string {
	all := map[string]bool{}
	for _, t := range pairs {
		for i := range t.CoRuns {
			all[t.CoRuns[i].Set] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// add takes a co-run in, or counts why not.
func (s *PairSet) add(c *measurements.CoRun, measurement string, solos map[soloKey]*measurements.Solo) error {
	wrong := wrongFamilies[s.Layout]
	switch {
	case c.Set != "" && c.Set != measurement:
		s.OtherSets++
		return nil
	case !c.Fits:
		s.NoFit++
		return nil
	case c.A.Family == wrong || c.B.Family == wrong:
		s.Dropped++
		return nil
	}
	pair := Pair{Sides: [2]Side{{CoRunner: c.A}, {CoRunner: c.B}}, Memory: c.Memory}
	for i := range pair.Sides {
		side := &pair.Sides[i]
		layout := soloLayouts[s.Layout]
		if _, given := solos[soloKey{layout: layout}]; !given {
			continue
		}
		solo, ok := solos[soloKey{layout, c.GPU, side.Workload, int64(side.Share)}]
		if !ok {
			return fmt.Errorf("the profiles have none of workload %q on %v of %s", side.Workload, side.Share, c.GPU)
		}
		side.Solo = solo
	}
	s.Pairs = append(s.Pairs, pair)
	return nil
}

// soloKey finds a solo profile; with the layout alone it says that there are some.
type soloKey struct {
	layout        csvtable.Format
	gpu, workload string
	share         int64
}

func solosOf(profiles []*measurements.File) (map[soloKey]*measurements.Solo, error) {
	solos := map[soloKey]*measurements.Solo{}
	for _, t := range profiles {
		if len(t.Solos) == 0 {
			return nil, fmt.Errorf("%v: it has no profiles of workloads that were measured alone", t)
		}
		solos[soloKey{layout: t.Format}] = &t.Solos[0]
		for i := range t.Solos {
			s := &t.Solos[i]
			solos[soloKey{t.Format, s.GPU, s.Workload, int64(s.Share)}] = s
		}
	}
	return solos, nil
}

// Families returns the families of the sets by name.
func Families(sets []PairSet) []string {
	all := map[string]bool{}
	for s := range sets {
		for i := range sets[s].Pairs {
			for _, side := range sets[s].Pairs[i].Sides {
				all[side.Family] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// ParseFamilies reads a list of families separated by commas; All is every family of the sets. A model stands for its
// family: ResNet18 for ResNet. Case does not matter. A family counts once.
func ParseFamilies(list string, sets []PairSet) ([]string, error) {
	known := Families(sets)
	if strings.EqualFold(list, All) {
		return known, nil
	}
	var families []string
	for part := range strings.SplitSeq(list, ",") {
		name := strings.TrimSpace(part)
		i := slices.IndexFunc(known, func(f string) bool { return strings.EqualFold(f, name) })
		if i < 0 {
			i = slices.IndexFunc(known, func(f string) bool { return strings.EqualFold(f, measurements.Family(name)) })
		}
		if layout, ok := leftOut(name, sets); i < 0 && ok {
			return nil, fmt.Errorf("family %q is left out of %s, since its solo speed there is wrong; legal are %s, or %s for each of them",
				name, layout, strings.Join(known, ", "), All)
		}
		if i < 0 {
			return nil, fmt.Errorf("no pair has the family %q, legal are %s, or %s for each of them", name, strings.Join(known, ", "), All)
		}
		if !slices.Contains(families, known[i]) {
			families = append(families, known[i])
		}
	}
	return families, nil
}

// leftOut returns the layout of a set from which the lists leave out a family as wrong.
func leftOut(family string, sets []PairSet) (csvtable.Format, bool) {
	for i := range sets {
		if wrong := wrongFamilies[sets[i].Layout]; wrong != "" && strings.EqualFold(wrong, measurements.Family(family)) {
			return sets[i].Layout, true
		}
	}
	return "", false
}
