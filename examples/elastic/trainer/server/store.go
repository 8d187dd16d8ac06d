package server

import (
	"fmt"
	"sync"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
)

// store has the parameters of one server, and the gradients of tasks that are not applied yet.
type store struct {
	spec model.Spec

	mu     sync.RWMutex
	step   int // the number of steps in the parameters
	held   group.Range
	values []float32
	sums   map[group.TaskID][]int32
	next   next
}

// next is a part of a next layout that the server has fetched.
type next struct {
	version int
	held    group.Range
	values  []float32
}

// newStore returns a store that holds parameters before the first step.
func newStore(spec model.Spec, values []float32) *store {
	return &store{spec: spec, held: group.Range{To: len(values)}, values: values, sums: map[group.TaskID][]int32{}}
}

// read returns a copy of parameters before a step.
func (s *store) read(step int, r group.Range) ([]float32, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.check(step, r); err != nil {
		return nil, fmt.Errorf("read parameters: %w", err)
	}
	return append([]float32{}, s.values[r.From-s.held.From:r.To-s.held.From]...), nil
}

// add keeps the gradients of a task. Those that are there already count once.
func (s *store) add(step int, task group.TaskID, r group.Range, sum []int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(step, r); err != nil {
		return fmt.Errorf("add gradients: %w", err)
	}
	if r != s.held {
		return fmt.Errorf("add gradients: they are of the range %v, the server holds %v", r, s.held)
	}
	s.sums[task] = sum
	return nil
}

// check checks that a question is about parameters that are here now.
func (s *store) check(step int, r group.Range) error {
	if step != s.step {
		return fmt.Errorf("the step %d is not the present one, %d", step, s.step)
	}
	if r.Len() == 0 || !s.held.Holds(r) {
		return fmt.Errorf("the range %v is not in %v, which the server holds", r, s.held)
	}
	return nil
}

// apply changes the parameters by the sum of tasks, and forgets all tasks.
func (s *store) apply(step int, tasks []group.TaskID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step != s.step {
		return fmt.Errorf("apply step %d: the present one is %d", step, s.step)
	}
	total := make([]int32, len(s.values))
	for _, id := range tasks {
		sum, ok := s.sums[id]
		if !ok {
			return fmt.Errorf("apply step %d: the gradients of task %d are not here", step, id)
		}
		for i, g := range sum {
			total[i] += g
		}
	}
	s.spec.Descend(s.values, total)
	s.step++
	clear(s.sums)
	return nil
}

// prepare keeps a part of a next layout beside the present one, unless a later layout is there. Pieces are the parameters that
// other servers had, by range.
func (s *store) prepare(version int, r group.Range, pieces map[group.Range][]float32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.next.version {
		return
	}
	s.next = next{version: version, held: r, values: make([]float32, r.Len())}
	for piece, values := range pieces {
		copy(s.next.values[piece.From-r.From:], values)
	}
	if own := r.And(s.held); own.Len() > 0 {
		copy(s.next.values[own.From-r.From:], s.values[own.From-s.held.From:own.To-s.held.From])
	}
}

// adopt changes to the part of a layout, and forgets all tasks.
func (s *store) adopt(version, step int, r group.Range) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.next.version == version && s.next.held == r:
		s.values = s.next.values
	case s.held.Holds(r): // it lacks nothing, so it did not fetch
		s.values = append([]float32{}, s.values[r.From-s.held.From:r.To-s.held.From]...)
	default:
		return fmt.Errorf("adopt layout %d: the parameters %v are not here", version, r)
	}
	s.held, s.step, s.next = r, step, next{version: version}
	clear(s.sums)
	return nil
}
