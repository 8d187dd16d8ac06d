package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/test/golden"
)

// trace is the small cluster and its pods under testdata.
var trace = []string{"fragmentation", "--nodes", "testdata/nodes.csv", "--pods", "testdata/pods.csv"}

func fragmentation(more ...string) []string { return append(trace[:len(trace):len(trace)], more...) }

func TestFragmentation(t *testing.T) {
	args := fragmentation("--no-timing", "--seeds", "1-3", "--policy", "fgd,packed,random")
	golden.Text(t, "fragmentation.json", succeed(t, append(args, "-o", "json")...))
	golden.Text(t, "fragmentation.txt", succeed(t, args...))
}

// TestFragmentationKeys holds the JSON to its keys: all policies, the loads, and a time per run unless it is not wanted.
func TestFragmentationKeys(t *testing.T) {
	var got struct {
		Results []struct {
			Policy        string                        `json:"policy"`
			Seeds         []int64                       `json:"seeds"`
			Allocated     map[string]map[string]float64 `json:"allocated_percent"`
			Fragmentation map[string]map[string]float64 `json:"fragmentation_percent"`
			SecondsPerRun *float64                      `json:"seconds_per_run"`
		} `json:"results"`
		Bound struct {
			Most     map[string]float64 `json:"most"`
			Feasible map[string]float64 `json:"feasible"`
			Gap      map[string]float64 `json:"gap"`
			Cut      bool               `json:"cut"`
		} `json:"bound"`
	}
	decoder := json.NewDecoder(strings.NewReader(succeed(t, fragmentation("-o", "json", "--seeds", "7,9")...)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	var policies []string
	for _, r := range got.Results {
		policies = append(policies, r.Policy)
		if diff := cmp.Diff([]int64{7, 9}, r.Seeds); diff != "" {
			t.Errorf("seeds (-want +got):\n%s", diff)
		}
		for _, load := range []string{"80", "100", "130"} {
			if f := r.Allocated[load]; len(f) != 2 || f["mean"] <= 0 || f["mean"] > 100 {
				t.Errorf("%s allocates %v at %s", r.Policy, f, load)
			}
		}
		if most := got.Bound.Most["mean"]; r.Allocated["130"]["mean"] > most || most > 100 {
			t.Errorf("%s allocates %v at 130, the bound is %v", r.Policy, r.Allocated["130"], most)
		}
		if _, ok := r.Fragmentation["80"]["sd"]; !ok || len(r.Fragmentation) != 1 {
			t.Errorf("%s fragments %v", r.Policy, r.Fragmentation)
		}
		if r.SecondsPerRun == nil || *r.SecondsPerRun < 0 {
			t.Errorf("%s took %v", r.Policy, r.SecondsPerRun)
		}
	}
	if b := got.Bound; b.Feasible["mean"] <= 0 || b.Gap["mean"] < 0 || b.Cut {
		t.Errorf("bound %+v", b)
	}
	if diff := cmp.Diff(placement.Policies(), policies); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// TestFragmentationWithoutBound leaves the bound out of table and JSON.
func TestFragmentationWithoutBound(t *testing.T) {
	args := fragmentation("--no-timing", "--seeds", "1", "--policy", "fgd", "--bound=false")
	for _, form := range []string{"json", "table"} {
		if got := succeed(t, append(args, "-o", form)...); strings.Contains(got, "bound") || strings.Contains(got, "at most") {
			t.Errorf("%s has a bound: %s", form, got)
		}
	}
}
