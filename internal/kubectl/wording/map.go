package wording

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/why"
)

// Brief is Answer without the parts that only -o wide has.
func Brief(a *why.Answer, at time.Time) string { return Answer(a, at, false) }
