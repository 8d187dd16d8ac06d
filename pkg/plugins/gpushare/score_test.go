package gpushare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestNormalizeScoreRanksStrictly(t *testing.T) {
	scores := fwk.NodeScoreList{
		{Name: "d", Score: math.MinInt64}, {Name: "c", Score: 7}, {Name: "a", Score: 7}, {Name: "b", Score: math.MaxInt64}, {Name: "e", Score: -1},
	}
	want := fwk.NodeScoreList{
		{Name: "d", Score: 96}, {Name: "c", Score: 98}, {Name: "a", Score: 99}, {Name: "b", Score: 100}, {Name: "e", Score: 97},
	}
	if status := (&Plugin{}).NormalizeScore(t.Context(), nil, nil, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	if diff := cmp.Diff(want, scores); diff != "" {
		t.Errorf("NormalizeScore (-want +got):\n%s", diff)
	}
}

// 300 nodes with few different scores, in any order: 100 different ranks, by score and name, and 0 for the rest.
func TestNormalizeScoreDoesNotDependOnTheOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	scores := make(fwk.NodeScoreList, 300)
	for i := range scores {
		scores[i] = fwk.NodeScore{Name: fmt.Sprintf("n%03d", i), Score: int64(i % 7)}
	}
	ranks := func() map[string]int64 {
		shuffled := append(fwk.NodeScoreList{}, scores...)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		(&Plugin{}).NormalizeScore(t.Context(), nil, nil, shuffled)
		byName := map[string]int64{}
		for _, s := range shuffled {
			byName[s.Name] = s.Score
		}
		return byName
	}
	first := ranks()
	seen := map[int64]int{}
	for _, rank := range first {
		seen[rank]++
	}
	if seen[0] != 200 || len(seen) != 101 || first["n006"] != 100 || first["n013"] != 99 {
		t.Errorf("%d nodes have 0, %d different ranks, n006 has %d, n013 has %d", seen[0], len(seen), first["n006"], first["n013"])
	}
	for range 20 {
		if diff := cmp.Diff(first, ranks()); diff != "" {
			t.Fatalf("the ranks depend on the order:\n%s", diff)
		}
	}
}
