package main

import (
	"encoding/json"
	"testing"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/test/golden"
)

func TestShapes(t *testing.T) {
	args := []string{"shapes", "--shapes", "10-11", "--seeds", "1", "--policy", "packed,spread"}
	golden.Text(t, "shapes.txt", succeed(t, args...))
	var got results.Shapes
	if err := json.Unmarshal([]byte(succeed(t, append(args, "--sort", "flows", "-o", "json")...)), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Shapes) != 1 || got.Shapes[0].Number != 11 || got.Shapes[0].JCT["packed"] <= 0 || got.Results[0].Fills != nil || got.Results[0].Flows == nil {
		t.Errorf("results %+v", got)
	}
}
