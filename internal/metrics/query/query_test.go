package query

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/metrics"
)

var (
	used  = metrics.Family{Name: "used_bytes", Type: metrics.Gauge, Labels: []string{"device"}}
	info  = metrics.Family{Name: "device_info", Type: metrics.Gauge, Labels: []string{"device", "index"}}
	fails = metrics.Family{Name: "fails_total", Type: metrics.Counter, Labels: []string{"reason"}}
	waits = metrics.Family{Name: "wait_seconds", Type: metrics.Histogram, Labels: []string{"level"}}
)

// The package writes expressions as a person would write them.
func TestExpressions(t *testing.T) {
	of := []string{Node, "device"}
	for _, c := range []struct {
		expr   Expr
		want   string
		labels string
	}{
		{Of(used).Now(), `used_bytes`, "device instance job node"},
		{Of(used, Chosen(Node), Is("device", `a"b`)).Mean("5m").Sum(Node), `sum by (node) (avg_over_time(used_bytes{node=~"$node", device="a\"b"}[5m]))`, "node"},
		{Of(fails, Not("reason", "x")).Rate(RateInterval).Sum(), `sum(rate(fails_total{reason!="x"}[$__rate_interval]))`, ""},
		{Of(fails, In("reason", "x", "y")).Increase("1h").Max("reason"), `max by (reason) (increase(fails_total{reason=~"x|y"}[1h]))`, "reason"},
		{Of(waits).Quantile(.99, "5m", "level"), `histogram_quantile(0.99, sum by (le, level) (rate(wait_seconds_bucket[5m])))`, "level"},
		{Of(waits).Buckets("5m"), `sum by (le) (increase(wait_seconds_bucket[5m]))`, "le"},
		{Of(used).Now().Sum().Minus(Of(used).Now().Count()).DividedBy(Of(used).Now().Sum().OrZero()).Above(.5),
			`((sum(used_bytes) - count(used_bytes)) / (sum(used_bytes) or vector(0))) > 0.5`, ""},
		{Of(used).Now().And(Of(used).Mean("5m").Below(1), of...), `used_bytes and on(node, device) (avg_over_time(used_bytes[5m]) < 1)`, "device instance job node"},
		{Of(used).Now().Sum(of...).Named(Of(info).Now(), of, "index"), `sum by (node, device) (used_bytes) * on(node, device) group_left(index) device_info`, "device index node"},
	} {
		if err := c.expr.Err(); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
		if got, labels := c.expr.String(), strings.Join(c.expr.Labels(), " "); got != c.want || labels != c.labels {
			t.Errorf("written %s with the labels %q, want %s with %q", got, labels, c.want, c.labels)
		}
	}
}

// A mistake stays with all that is made of the expression, and says what is there.
func TestMistakes(t *testing.T) {
	for want, e := range map[string]Expr{
		`used_bytes has no label "reason"; it has device, instance, job, node`:          Of(used, Is("reason", "x")).Now().Sum().Above(1),
		`nothing has the label "pod" by which to sum`:                                   Of(used).Now().Sum("pod"),
		`used_bytes is a gauge, and this is for a counter`:                              Of(used).Rate("5m"),
		`fails_total is a counter, and this is for a gauge`:                             Of(fails).Now().Sum(),
		`wait_seconds is a histogram, and this is for a counter`:                        Of(waits).Increase("5m"),
		`fails_total is a counter, and this is for a histogram`:                         Of(fails).Quantile(.5, "5m"),
		`one side of "/" has the labels [reason], the other []`:                         Of(fails).Rate("5m").Sum("reason").DividedBy(Of(fails).Rate("5m").Sum()),
		`the label "reason" is not on both sides of "and"`:                              Of(used).Now().And(Of(fails).Rate("5m"), "reason"),
		`0 stands for a value without labels, and this has device, instance, job, node`: Of(used).Now().OrZero(),
		`device_info has no label "model"; it has device, index, instance, job, node`:   Of(used).Now().Named(Of(info).Now(), []string{"device"}, "model"),
		`nothing has the label "le" by which to max; there are level`:                   Of(waits).Quantile(.5, "5m", "level").Max("le"),
		`device_info has no label "x"; it has device, index, instance, job, node`:       Of(used).Now().Sum().Plus(Of(info, Is("x", "")).Now().Sum()),
	} {
		if err := e.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", e, err, want)
		}
	}
}

// An expression knows what it reads, on both sides.
func TestFamilies(t *testing.T) {
	var names []string
	for _, f := range Of(used).Now().And(Of(info).Now()).Families() {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"used_bytes", "device_info"}) {
		t.Errorf("it reads %v", names)
	}
}
