package results_test

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/test/golden"
)

func rightsize() *results.Rightsize {
	published, slices := 13, 90
	return &results.Rightsize{Results: []results.SizedSet{
		{
			Set: 5, GPUs: 12, Slices: 82, PublishedGPUs: &published, PublishedSlices: &slices, LowerBound: 12, Optimal: true,
			Models: []results.SizedModel{
				{
					Model: "bert", Rate: 843, Throughput: 929.83, SLO: 2153, Limit: 968.85, Latency: 413.04,
					Instances: []results.SizedInstance{
						{GPU: 0, Start: 0, Slices: 2, Batch: 16, Processes: 4, Throughput: 154.9, Latency: 413.04},
						{GPU: 0, Start: 4, Slices: 3, Batch: 64, Processes: 1, Throughput: 620.03, Latency: 200},
						{GPU: 11, Start: 0, Slices: 2, Batch: 16, Processes: 4, Throughput: 154.9, Latency: 413.04},
					},
				},
				{Model: "vgg", Rate: 1, SLO: 10, Limit: 4.5, Instances: []results.SizedInstance{}},
			},
			Violations: []results.Violation{
				{Deployment: "tandem", Model: "vgg", Reason: "the fastest batch takes 5ms, above 4.5ms"},
				{Deployment: "published", GPU: "1/3", Reason: "it is full"},
				{Deployment: "tandem", Reason: "14 GPUs"},
			},
			Notes: []string{"published: the starts overlap"},
		},
		{Set: 6, GPUs: 15, Slices: 105, LowerBound: 14, Models: []results.SizedModel{}, Violations: []results.Violation{}, Notes: []string{}},
	}}
}

func TestRightsize(t *testing.T) {
	r := rightsize()
	golden.Written(t, "rightsize.json", func(w io.Writer) error { return report.JSON(w, r) })
	golden.Written(t, "rightsize.txt", r.Table)
	want := []string{
		"set 5, tandem, vgg: the fastest batch takes 5ms, above 4.5ms", "set 5, published, GPU 1/3: it is full", "set 5, tandem: 14 GPUs",
	}
	if diff := cmp.Diff(want, r.Violated()); diff != "" {
		t.Errorf("violated (-want +got):\n%s", diff)
	}
}
