package placement

import (
	"cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxSteps bounds the search for an arrangement of several containers on one node: how often it tries a container on a
// device. A larger bound tries more of the arrangements, which rarely exist. A step takes some two hundred nanoseconds. Pods of up to
// four containers on eight devices stay below a thousand steps.
const maxSteps = 2000

// attemptSteps bounds the searches on all nodes that one look at a cluster for a pod makes: it looks several times in an attempt to place
// the pod. leastSteps is what each node has at least, after a first try that is not counted.
const attemptSteps, leastSteps = 30_000, 30

// StepsOn returns the steps of vgpu.Request.Steps that each of so many nodes has in a look at a cluster. Only the nodes that the pod may use need
// to share the steps, where the caller asks no others.
func StepsOn(nodes int) int { return min(max(leastSteps, attemptSteps/max(1, nodes)), maxSteps) }

// Fewer returns the steps of a search for a request, at most so many.
func Fewer(r *vgpu.Request, most int) int { return min(stepsOf(r), most) }

// stepsOf returns the steps of a search for a request.
func stepsOf(r *vgpu.Request) int { return cmp.Or(r.Steps, maxSteps) }
