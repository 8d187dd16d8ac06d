package deploy

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The field serving of a profile has the same legal values as the replica of a fleet, one entry for each model and share.
func TestServingSchema(t *testing.T) {
	serving := func(pairs ...any) []any {
		s := map[string]any{"model": "A100", "sharePercent": int64(50), "replica": map[string]any{"rate": "120", "time": "25ms"}}
		for i := 0; i < len(pairs); i += 2 {
			if s[pairs[i].(string)] = pairs[i+1]; pairs[i+1] == nil {
				delete(s, pairs[i].(string))
			}
		}
		return []any{s}
	}
	replica := func(pairs ...any) []any {
		r := map[string]any{"rate": "120", "time": "25ms"}
		for i := 0; i < len(pairs); i += 2 {
			r[pairs[i].(string)] = pairs[i+1]
		}
		return serving("replica", r)
	}
	many := func(n int) (all []any) {
		for i := range n {
			all = append(all, serving("model", fmt.Sprint("m", i), "replica", map[string]any{"rate": "120.5", "time": "23h59m59s", "firstToken": "23h", "gate": "1h", "variation": "0.5", "inFlight": int64(8)})...)
		}
		return all
	}
	for _, test := range []struct {
		name    string
		serving []any
		want    string // "" when legal
	}{
		{"half a device", serving(), ""},
		{"two devices", serving("sharePercent", int64(200)), ""},
		{"two shares of a model", append(serving(), serving("sharePercent", int64(20))...), ""},
		{"a language model", replica("firstToken", "10ms", "inFlight", int64(6)), ""},
		{"as many as can be", many(64), ""},
		{"too many", many(65), "spec.serving: Too many"},
		{"a share twice", append(serving(), serving()...), "spec.serving[1]: Duplicate value"},
		{"any model", serving("model", "*"), "spec.serving[0].model"},
		{"no model", serving("model", nil), "spec.serving[0].model: Required value"},
		{"no share", serving("sharePercent", nil), "spec.serving[0].sharePercent: Required value"},
		{"a share of nothing", serving("sharePercent", int64(0)), "spec.serving[0].sharePercent"},
		{"a device and a half", serving("sharePercent", int64(150)), "a multiple of 100 up to 12800"},
		{"no replica", serving("replica", nil), "spec.serving[0].replica: Required value"},
		{"a rate of 0", replica("rate", "0"), "rate must be a decimal above 0"},
		{"a time of 0", replica("time", "0s"), "time must be a duration from 1us to 24h"},
		{"a first token after the answer", replica("firstToken", "26ms"), "firstToken must be at most time"},
		{"answers without end", replica("inFlight", int64(5000)), "spec.serving[0].replica.inFlight"},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := asObject(t, workload("serves", false))
			object.Object["spec"] = map[string]any{"serving": test.serving}
			strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			_, err := profiles(t, as(t.Context(), t, admin)).Create(t.Context(), object, strict)
			if test.want != "" {
				wantRefusal(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
