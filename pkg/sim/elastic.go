package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// Elastic makes a gang elastic: it runs with any of several numbers of members. The Duration of its jobs is its work,
// told as the time that it takes with its least number of members on one node. With more members it ends earlier.
type Elastic struct {
	// Sizes are the legal numbers of members, ascending. The first is the gang's least number of members, the last at
	// most the number of all members. Members beyond the present size are held back: see Held.
	Sizes []int
	// Curve is how fast the gang is, by the number of its members and of their nodes. Package elastic knows it too.
	Curve elastic.Curve
	// ResizeTime is how long the gang does no work after a change of the number of its members, 0 or more.
	ResizeTime time.Duration
	// ReportsProgress says that the gang tells the part of its work that is done, whenever sizes are decided.
	ReportsProgress bool
	// Fleet makes the gang an inference fleet, nil for a training.
	Fleet *Fleet
}

// ElasticConfig is what the sizes of elastic gangs go by. The fields are those of the controller's flags.
type ElasticConfig struct {
	elastic.Config
	// Every is the time between two decisions, 0 for DefaultEvery. They are at multiples of it.
	Every time.Duration
	// Notice is the time from the decision that a member leaves to its eviction. The member works meanwhile. As in the
	// controller, a decision evicts the members whose notice is over, so that it is a multiple of Every in effect.
	Notice time.Duration
	// AdmitWithin is the time after which a size that the gang cannot reach for want of places goes back to what it has;
	// 0 for DefaultAdmitWithin.
	AdmitWithin time.Duration
}

// Defaults of ElasticConfig, those of the controller's flags.
const (
	DefaultEvery       = 10 * time.Second
	DefaultAdmitWithin = 2 * time.Minute
)

// Size is a number of members of an elastic gang that run, from a time on.
type Size struct {
	At time.Duration
	// Workers is 0 while the gang waits, and from its end on.
	Workers int
	// Speed is the work that the gang does in a time, relative to its least number of members on one node. The gang
	// does none before Works.
	Speed float64
	Works time.Duration
}

// withDefaults returns the configuration with the defaults in place of zeros.
func (c ElasticConfig) withDefaults() ElasticConfig {
	c.Every = cmp.Or(c.Every, DefaultEvery)
	c.AdmitWithin = cmp.Or(c.AdmitWithin, DefaultAdmitWithin)
	c.Horizon = cmp.Or(c.Horizon, elastic.DefaultHorizon)
	return c
}

// settled is how long after the last arrival, start or end of a pod the sizes of gangs that never end are still decided on, changes of sizes
// aside. A change must repay its cost within half of the age of its gang and within the horizon, and a gang that has changed too often waits
// for an hour.
func (c *ElasticConfig) settled() time.Duration {
	return 2*time.Duration(c.Horizon*float64(time.Second)) + time.Hour
}

// longestNotice bounds the times of ElasticConfig, as the controller does.
const longestNotice = time.Hour

func (c *ElasticConfig) validate() error {
	switch {
	case c.Every != 0 && (c.Every < time.Second || c.Every > longestNotice):
		return fmt.Errorf("sizes are decided every %v, legal is 1s to %v", c.Every, longestNotice)
	case c.Notice < 0 || c.Notice > longestNotice:
		return fmt.Errorf("members leave after a notice of %v, legal is 0s to %v", c.Notice, longestNotice)
	case c.AdmitWithin < 0 || c.AdmitWithin > latest:
		return fmt.Errorf("sizes go back after %v, legal is 0s to %v", c.AdmitWithin, latest)
	}
	return c.Validate()
}

// validateElastic returns what is wrong with the elastic gangs. The number of members of each gang is given.
func (s *Setup) validateElastic(members map[*Gang]int) error {
	if err := s.Elastic.validate(); err != nil {
		return fmt.Errorf("elastic gangs: %w", err)
	}
	first := map[*Gang]*Job{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Gang == nil || j.Gang.Elastic == nil {
			continue
		}
		if first[j.Gang] == nil {
			first[j.Gang] = j
			if err := j.Gang.validateSizes(members[j.Gang]); err != nil {
				return fmt.Errorf("gang %s: %w", j.Gang.Name, err)
			}
		}
		if err := cmp.Or(j.worker(first[j.Gang]), j.validateFleet()); err != nil {
			return fmt.Errorf("job %d (pod %s): %w", i, j.Request.Pod, err)
		}
	}
	return nil
}

// validateSizes returns what is wrong with the sizes and the speeds of an elastic gang of so many members.
func (g *Gang) validateSizes(members int) error {
	e := g.Elastic
	switch {
	case len(e.Sizes) == 0:
		return errors.New("it is elastic and has no legal number of members")
	case g.MinCount != 0 && g.MinCount != e.Sizes[0]:
		return fmt.Errorf("it may run with %d members and its least number of members is %d: they must be the same", e.Sizes[0], g.MinCount)
	case e.Sizes[len(e.Sizes)-1] > members:
		return fmt.Errorf("it may run with %d members and has %d", e.Sizes[len(e.Sizes)-1], members)
	case e.ResizeTime < 0 || e.ResizeTime > 24*time.Hour:
		return fmt.Errorf("a change of its size takes %v, legal is 0s to 24h", e.ResizeTime)
	}
	for i, n := range e.Sizes {
		if n < 1 || i > 0 && n <= e.Sizes[i-1] {
			return fmt.Errorf("its numbers of members are %v: they must ascend from 1", e.Sizes)
		}
	}
	return e.Curve.Validate()
}

// worker returns why a pod cannot be a member of an elastic gang with a first member.
func (j *Job) worker(first *Job) error {
	switch {
	case len(j.Request.Containers) == 0:
		return errors.New("is a member of an elastic gang and has no GPU")
	case j.DeclaresEnd:
		return errors.New("declares its end, and an elastic gang does not know it")
	case j.Budget != nil:
		return errors.New("is a member of an elastic gang and has a budget, which would count the members that are held back")
	case j.Request.Host != first.Request.Host || !slices.EqualFunc(j.Request.Variants, first.Request.Variants, sameText) ||
		!slices.EqualFunc(j.Request.Containers, first.Request.Containers, sameText):
		return errors.New("asks for something else than the first member of its elastic gang")
	}
	return nil
}

// sameText compares requests, which have no operator.
func sameText[T any](a, b T) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }
