package gpumap

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/why"
)

// Words writes for people what package why found out at a time.
type Words func(a *why.Answer, at time.Time) string

// errNotWaiting says that a snapshot has nothing of a name that waits.
var errNotWaiting = errors.New("does not wait at this time")

// explained answers /why: why a pod or a gang waits, by the snapshot of a moment.
func explained(r *http.Request, s Source, words Words) ([]byte, error) {
	pod, gang := r.URL.Query().Get("pod"), r.URL.Query().Get("gang")
	if (pod == "") == (gang == "") {
		return nil, badRequest{fmt.Errorf("pod: %q, gang: %q, legal is one of the two, as NAMESPACE/NAME", pod, gang)}
	}
	shot, err := shotAt(r, s)
	if err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil { // the reader has gone on to another moment
		return nil, err
	}
	text, err := explain(shot, pod, gang, words)
	return []byte(text), err
}

// explain returns why a pod or a gang of a snapshot waits. A member of a gang has the answer of its gang. PodGroups and gangs by label may
// have the same name: each has a part of the text then.
func explain(s *snapshot.Snapshot, pod, gang string, words Words) (string, error) {
	parts := make([]string, 0, 1)
	said := map[snapshot.GangName]bool{}
	for i := range s.Pending {
		p := &s.Pending[i]
		asked := p.Path() == pod && pod != "" || p.Gang != nil && gangPath(*p.Gang) == gang
		if !asked || p.Gang != nil && said[*p.Gang] {
			continue
		}
		var a *why.Answer
		var err error
		if p.Gang != nil {
			said[*p.Gang] = true
			a, err = why.Gang(s, *p.Gang)
		} else {
			a, err = why.Pod(s, p.UID)
		}
		if err != nil {
			return "", err
		}
		parts = append(parts, words(a, s.At))
	}
	if len(parts) == 0 {
		return "", fmt.Errorf("%s%s %w", pod, gang, errNotWaiting)
	}
	return strings.Join(parts, "\n"), nil
}
