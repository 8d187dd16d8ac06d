package reservation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// phasesPage returns docs/gang-phases.md.
func phasesPage(seen map[transition]bool) string {
	var b strings.Builder
	b.WriteString(`# The phases of gangs and preemptors

The scheduler tries the members of a gang one after the other, and room comes free piece by piece. Package
[reservation](../pkg/reservation/doc.go) remembers meanwhile which room is kept for whom. It changes what it remembers only in
` + "`State.Step`" + `, which takes an event and returns effects. This page is generated from the scenarios under
` + "`pkg/reservation/testdata`" + `, each of which tells a short story with its effects:
` + "`go test ./pkg/reservation -run TestScenarios -update`" + ` writes it.

The state of a gang has two parts. A single pod for which pods are evicted has phases of its own: see the end.

## The phase: members that have a place

| phase | what it means |
|---|---|
| Unplaced | No member has a place. |
| Planned | All members that must run have a place, which is kept, and wait for each other. If one member fails, the plan ends. |
| Binding | All members that must run were at their places and are being bound. The place of a member whose bind fails is kept. If too few are bound by the placement deadline, the bound ones are evicted. |
| Running | As many members as must run were bound. Members that come later are planned and bound one by one. |

`)
	names := []string{Unplaced.String(), Planned.String(), Binding.String(), Running.String()}
	transitionsTable(&b, seen, names)
	b.WriteString(`
## The need: members that must run and have no place

| need | what it means |
|---|---|
| Satisfied | Nothing is known to be missing. |
| Incomplete | Fewer members exist without scheduling gates than must run, or their PodGroup does not exist. |
| Refused | No plan was found. |
| Reserving | No plan was found, and room is kept for the gang while the pods in its way end. One gang at a time has this. |
| Preempting | No plan was found, and room is kept for the gang while pods that are evicted for it end. |

`)
	names = []string{Satisfied.String(), Incomplete.String(), Refused.String(), Reserving.String(), Preempting.String()}
	transitionsTable(&b, seen, names)
	b.WriteString(`
## Single pods for which pods are evicted

| phase | what it means |
|---|---|
| Roomless | No room is kept for the pod. If its last preemption came to nothing, the pod pauses. |
| Leaving | Room is kept for the pod, and victims are still there. |
| Cleared | Room is kept for the pod, and all victims have left. The scheduler has a minute to place the pod. |

`)
	names = []string{Roomless.String(), Leaving.String(), Cleared.String()}
	transitionsTable(&b, seen, names)
	return b.String()
}

// transitionsTable writes the transitions between some phases, by what makes them.
func transitionsTable(b *strings.Builder, seen map[transition]bool, names []string) {
	by := map[[2]string][]string{}
	for t := range seen {
		if slices.Contains(names, t.from) {
			by[[2]string{t.from, t.to}] = append(by[[2]string{t.from, t.to}], t.by)
		}
	}
	order := func(x, y [2]string) int {
		return slices.Compare([]int{slices.Index(names, x[0]), slices.Index(names, x[1])}, []int{slices.Index(names, y[0]), slices.Index(names, y[1])})
	}
	fmt.Fprintf(b, "| from | to | commands of the scenarios that do it |\n|---|---|---|\n")
	for _, pair := range slices.SortedFunc(maps.Keys(by), order) {
		slices.Sort(by[pair])
		fmt.Fprintf(b, "| %s | %s | %s |\n", pair[0], pair[1], strings.Join(by[pair], ", "))
	}
}
