package membership

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rank orders the members of a gang: neighbours exchange the most data. The order is total over the pods of a
// namespace.
type Rank struct {
	// role is 0 for the one that leads (launcher, master, chief, head), else 1.
	role int
	// outer is the part of the gang that the member belongs to, −1 where it has no parts.
	outer int
	// owner separates the members of several controllers that each number their own from 0.
	owner string
	// index in the part, −1 for members without a number.
	index int
	name  string
}

// roleLabels are labels whose value says what a member does.
var roleLabels = []string{"training.kubeflow.org/job-role", "training.kubeflow.org/replica-type", "ray.io/node-type"}

// leading are the roles of the member that the others connect to.
var leading = []string{"launcher", "master", "chief", "head"}

// numberings are the labels by which controllers number the pods of a gang, the most specific first.
var numberings = []struct{ outer, index string }{
	{LabelReplica, "leaderworkerset.sigs.k8s.io/worker-index"},
	{"jobset.sigs.k8s.io/job-global-index", batchv1.JobCompletionIndexAnnotation},
	{"", "training.kubeflow.org/replica-index"},
	{"", batchv1.JobCompletionIndexAnnotation},
	{"", appsv1.PodIndexLabel},
}

// RankOf returns the place of a pod among the members of its gang, by the labels that controllers set: those of
// LeaderWorkerSet, JobSet, Kubeflow, indexed Jobs and StatefulSets. Pods without a number go by their names, with
// numbers in them counted as numbers: worker-2 comes before worker-10.
func RankOf(pod *v1.Pod) Rank {
	r := Rank{role: 1, outer: -1, index: -1, name: pod.Name}
	for _, label := range roleLabels {
		if slices.Contains(leading, strings.ToLower(pod.Labels[label])) {
			r.role = 0
		}
	}
	for _, n := range numberings {
		index, ok := indexOf(pod, n.index)
		outer, hasOuter := indexOf(pod, n.outer)
		if !ok || n.outer != "" && !hasOuter {
			continue
		}
		r.index = index
		if n.outer != "" {
			r.outer = outer
		} else if owner := metav1.GetControllerOf(pod); owner != nil {
			r.owner = owner.Name
		}
		break
	}
	return r
}

// Index returns the number of a member in its part of the gang, −1 where it has none.
func (r Rank) Index() int { return r.index }

// indexOf reads the number that a controller gave a pod.
func indexOf(pod *v1.Pod, label string) (int, bool) {
	raw, ok := pod.Labels[label]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(raw, 10, 32)
	return int(n), err == nil && n >= 0
}

// Compare orders ranks; 0 only for the same name.
func (r Rank) Compare(o Rank) int {
	return cmp.Or(
		cmp.Compare(r.role, o.role),
		cmp.Compare(r.outer, o.outer),
		naturally(r.owner, o.owner),
		cmp.Compare(r.index, o.index),
		naturally(r.name, o.name),
	)
}

// naturally compares texts with the numbers in them as numbers; of texts that are equal but for leading zeros the shorter
// comes first.
func naturally(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		n, m := digits(x), digits(y)
		if n > 0 && m > 0 {
			if c := compareNumbers(x[:n], y[:m]); c != 0 {
				return c
			}
			x, y = x[n:], y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// digits returns how many digits a text starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// compareNumbers compares numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
