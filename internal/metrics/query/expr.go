package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/metrics"
)

// Expr is an expression whose value is a vector.
type Expr struct {
	text string
	// labels of the result, sorted.
	labels   []string
	families []metrics.Family
	problems []error
	// operation says that the text needs parentheses beside an operator.
	operation bool
}

// String returns the expression in PromQL.
func (e Expr) String() string { return e.text }

// Labels returns the labels that the result may have, sorted.
func (e Expr) Labels() []string { return slices.Clone(e.labels) }

// Families returns the families that the expression reads.
func (e Expr) Families() []metrics.Family { return slices.Clone(e.families) }

// Err returns the mistakes in the expression, nil where there are none.
func (e Expr) Err() error {
	if len(e.problems) == 0 {
		return nil
	}
	return fmt.Errorf("write %s: %w", e.text, errors.Join(e.problems...))
}

// Sum adds up the series of equal labels.
func (e Expr) Sum(by ...string) Expr { return e.aggregate("sum", by) }

// Max returns the largest of the series of equal labels.
func (e Expr) Max(by ...string) Expr { return e.aggregate("max", by) }

// Count returns the number of series of equal labels.
func (e Expr) Count(by ...string) Expr { return e.aggregate("count", by) }

// Plus adds the values of equal labels. Both sides must have the same labels, as with Minus and DividedBy.
func (e Expr) Plus(o Expr) Expr { return e.arithmetic("+", o) }

// Minus subtracts the values of equal labels.
func (e Expr) Minus(o Expr) Expr { return e.arithmetic("-", o) }

// DividedBy divides the values of equal labels.
func (e Expr) DividedBy(o Expr) Expr { return e.arithmetic("/", o) }

// Above keeps the values above a number.
func (e Expr) Above(v float64) Expr { return e.with("> " + number(v)) }

// Below keeps the values below a number.
func (e Expr) Below(v float64) Expr { return e.with("< " + number(v)) }

// Equal keeps the values that are a number.
func (e Expr) Equal(v float64) Expr { return e.with("== " + number(v)) }

// AboveThat keeps the values above those of another expression with the same labels.
func (e Expr) AboveThat(o Expr) Expr { return e.arithmetic(">", o) }

// And keeps the values for which the other expression has one of equal labels: of those named, or of all.
func (e Expr) And(o Expr, on ...string) Expr {
	r := e.join("and", o, on)
	r.labels = e.labels
	return r
}

// OrZero adds a value of 0 where an expression without labels has none.
func (e Expr) OrZero() Expr {
	if len(e.labels) > 0 {
		e.problem("0 stands for a value without labels, and this has %s", strings.Join(e.labels, ", "))
	}
	e.text, e.operation = e.text+" or vector(0)", true
	return e
}

// Named adds labels of a metric whose value is always 1, such as tandem_device_info, found by the labels that both have.
func (e Expr) Named(info Expr, on []string, labels ...string) Expr {
	r := e.join("*", info, on)
	for _, l := range labels {
		if !slices.Contains(info.labels, l) {
			r.problem("%s has no label %q; it has %s", info.text, l, strings.Join(info.labels, ", "))
		}
	}
	r.text = fmt.Sprintf("%s * on(%s) group_left(%s) %s", e.operand(), strings.Join(on, ", "), strings.Join(labels, ", "), info.operand())
	r.labels = union(e.labels, labels)
	return r
}

func (e Expr) aggregate(operator string, by []string) Expr {
	for _, l := range by {
		if !slices.Contains(e.labels, l) {
			e.problem("nothing has the label %q by which to %s; there are %s", l, operator, strings.Join(e.labels, ", "))
		}
	}
	clause := ""
	if len(by) > 0 {
		clause = " by (" + strings.Join(by, ", ") + ") "
	}
	e.text, e.operation = fmt.Sprintf("%s%s(%s)", operator, clause, e.text), false
	e.labels = union(nil, by)
	return e
}

// arithmetic is an operation between values of the same labels.
func (e Expr) arithmetic(operator string, o Expr) Expr {
	r := e.join(operator, o, nil)
	r.labels = e.labels
	return r
}

// join is an operation between two expressions, by the labels on or, without any, by all of them, which must be the same then.
func (e Expr) join(operator string, o Expr, on []string) Expr {
	r := Expr{
		families: slices.Concat(e.families, o.families), problems: slices.Concat(e.problems, o.problems), operation: true,
	}
	clause := ""
	if len(on) > 0 {
		clause = " on(" + strings.Join(on, ", ") + ")"
	}
	r.text = e.operand() + " " + operator + clause + " " + o.operand()
	if len(on) == 0 && !slices.Equal(e.labels, o.labels) {
		r.problem("one side of %q has the labels [%s], the other [%s]", operator, strings.Join(e.labels, ", "), strings.Join(o.labels, ", "))
	}
	for _, l := range on {
		if !slices.Contains(e.labels, l) || !slices.Contains(o.labels, l) {
			r.problem("the label %q is not on both sides of %q: [%s] and [%s]", l, operator, strings.Join(e.labels, ", "), strings.Join(o.labels, ", "))
		}
	}
	return r
}

// with is an operation with a number.
func (e Expr) with(operation string) Expr {
	e.text, e.operation = e.operand()+" "+operation, true
	return e
}

func (e Expr) operand() string {
	if e.operation {
		return "(" + e.text + ")"
	}
	return e.text
}

func (e *Expr) problem(format string, args ...any) {
	e.problems = append(slices.Clone(e.problems), fmt.Errorf(format, args...))
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
