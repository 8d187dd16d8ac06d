package gpushare

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// podSet is a set of pods that any goroutine may use. The zero value is empty.
type podSet struct {
	mu   sync.Mutex
	pods sets.Set[vgpu.UID]
}

// add adds a pod, and reports whether it was not there.
func (s *podSet) add(uid vgpu.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = sets.Set[vgpu.UID]{}
	}
	before := s.pods.Len()
	return s.pods.Insert(uid).Len() > before
}

func (s *podSet) has(uid vgpu.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods.Has(uid)
}

func (s *podSet) remove(uid vgpu.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods.Delete(uid)
}
