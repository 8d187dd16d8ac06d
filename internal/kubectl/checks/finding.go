package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a finding means.
type Severity string

// Severities, the gravest first.
const (
	// Error: something does not work, or a tenant can leave its share.
	Error Severity = "error"
	// Warning: something works and is not as it should be.
	Warning Severity = "warning"
	// Note: something that is legal and that an administrator should know.
	Note Severity = "note"
)

// rank orders severities, the gravest first.
func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Note}, s) }

// AtLeast reports whether s is as grave as another severity.
func (s Severity) AtLeast(other Severity) bool { return s.rank() <= other.rank() }

// Finding is one thing that is wrong.
type Finding struct {
	// Check is the name of the check that found it.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Object is the kind and the name of what it is about, for example Pod/team-a/train-0.
	Object string `json:"object"`
	// What is wrong, in a sentence, and Why that matters.
	What string `json:"what"`
	Why  string `json:"why"`
	// Fix is a command or what to change.
	Fix string `json:"fix"`
	// Page of the documentation explains it: a path in the repository.
	Page string `json:"page"`
}

// Report is what the checks found.
type Report struct {
	// Findings, the gravest first, then by check and object.
	Findings []Finding `json:"findings"`
	// Passed are the checks that were carried out and found nothing, in the order of All.
	Passed []string `json:"passed"`
	// NotDone are the checks that were not carried out, for want of rights or because nothing is installed.
	NotDone []string `json:"notDone"`
}

// Worst returns the gravest severity of the findings, "" where there are none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return ""
	}
	return r.Findings[0].Severity
}

// hit is what a check says of one object.
type hit struct{ object, what, fix string }

// Check is one check.
type Check struct {
	Name     string
	Severity Severity
	// Needs are the sources without which the check is not carried out.
	Needs []Source
	// Why a finding matters, and the Page that explains it.
	Why, Page string

	find func(*Facts) []hit
}

// notChecked is the name of the check that reports refused sources.
const notChecked = "NotChecked"

// Find carries out all checks.
func Find(f *Facts) *Report {
	f = f.indexed()
	r := &Report{Findings: []Finding{}, Passed: []string{}, NotDone: []string{}}
	absent := !f.refused(Deployments, DaemonSets) && !f.installed()
	for _, c := range All() {
		alone := c.Name == "NotInstalled" || c.Name == notChecked || slices.Equal(c.Needs, []Source{Server}) && c.Name != "APIMissing"
		if f.refused(c.Needs...) || absent && !alone {
			r.NotDone = append(r.NotDone, c.Name)
			continue
		}
		hits := c.find(f)
		if len(hits) == 0 {
			r.Passed = append(r.Passed, c.Name)
		}
		for _, h := range hits {
			r.Findings = append(r.Findings, Finding{Check: c.Name, Severity: c.Severity, Object: h.object, What: h.what, Why: c.Why, Fix: h.fix, Page: c.Page})
		}
	}
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Object, b.Object), cmp.Compare(a.What, b.What))
	})
	return r
}

// refused reports whether the caller may not read one of the sources.
func (f *Facts) refused(sources ...Source) bool {
	return slices.ContainsFunc(sources, func(s Source) bool { return slices.Contains(f.Refused, s) })
}

// unread finds the sources that the caller may not read.
func unread(f *Facts) []hit {
	hits := make([]hit, 0, len(f.Refused))
	for _, s := range f.Refused {
		var names []string
		for _, c := range All() {
			if slices.Contains(c.Needs, s) {
				names = append(names, c.Name)
			}
		}
		where, role, binding := "", "clusterrole", "clusterrolebinding"
		if s.Namespaced() {
			where, role, binding = " -n "+f.Namespace, "role", "rolebinding"
		}
		if s == Server {
			hits = append(hits, hit{
				"Right/discovery", "the API server does not let you ask what it serves, so these checks were not done: " + strings.Join(names, ", "),
				"kubectl create clusterrolebinding doctor-discovery --clusterrole=system:discovery --user=NAME",
			})
			continue
		}
		name, _, _ := strings.Cut(string(s), ".")
		hits = append(hits, hit{
			"Right/" + s.Verb() + " " + string(s),
			fmt.Sprintf("the API server does not let you %s %s%s, so these checks were not done: %s", s.Verb(), s, in(&s, f), strings.Join(names, ", ")),
			fmt.Sprintf("kubectl create %[1]s doctor-%[2]s%[3]s --verb=%[4]s --resource=%[5]s && kubectl create %[6]s doctor-%[2]s%[3]s --%[1]s=doctor-%[2]s --user=NAME",
				role, name, where, s.Verb(), s, binding),
		})
	}
	return hits
}

// in says where a source is read.
func in(s *Source, f *Facts) string {
	switch {
	case s.Namespaced():
		return " in the namespace " + f.Namespace
	case *s == Pods:
		return " in all namespaces"
	}
	return ""
}
