package elastic_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

func TestParseSizes(t *testing.T) {
	const spaced = " 2 - 3 "
	for text, want := range map[string][]int{
		"2-5": {2, 3, 4, 5}, "2-8/3": {2, 5, 8}, "1-4/9": {1}, "1,2,4,8": {1, 2, 4, 8}, spaced: {2, 3}, "7": {7}, "9-10": {9, 10},
		"": nil, "-": nil, "0-4": nil, "4-2": nil, "2-4/0": nil, "1,1": nil, "2,1": nil, "1,,2": nil, "9-11": nil, "11": nil, "NaN": nil, "+2": nil,
		"2-4-6": nil, "1.5": nil, "99999999999999999999": nil,
	} {
		got, legal := elastic.ParseSizes(text, 10)
		if !legal {
			got = nil
		}
		if diff := cmp.Diff(want, got); diff != "" || legal != (want != nil) {
			t.Errorf("ParseSizes(%q) is %v (-want +got):\n%s", text, legal, diff)
		}
	}
}

// A list of sizes is bounded, and says nothing of how large they are.
func TestManySizes(t *testing.T) {
	for text, want := range map[string]bool{"1-256": true, "1-257": false, "1-10000": false, "1-10000/40": true, "1-10000/39": false} {
		if sizes, legal := elastic.ParseSizes(text, 10_000); legal != want || len(sizes) > elastic.MaxSizes {
			t.Errorf("ParseSizes(%q) is %v with %d sizes", text, legal, len(sizes))
		}
	}
}
