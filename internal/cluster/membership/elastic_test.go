package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestElasticSizes(t *testing.T) {
	const (
		again = "; correct the annotation and the pod is tried again"
		legal = "it must be a range such as 2-8, a range in steps such as 2-8/2, or an ascending list such as 1,2,4,8: " +
			"numbers of members from 1 to 10000, at most 256 of them (1-1000/4 has 250), the first one the least number of members of the gang" + again
		other = "its least number is 3, and the least number of members of the gang is 2: they must be the same" + again
	)
	for raw, test := range map[string]struct {
		sizes []int
		err   string
	}{
		"2-5":     {sizes: []int{2, 3, 4, 5}},
		"2-8/2":   {sizes: []int{2, 4, 6, 8}},
		"2-9/3":   {sizes: []int{2, 5, 8}},
		"2-7/2":   {sizes: []int{2, 4, 6}}, // the guide says that 7 is never reached
		"2,4,8":   {sizes: []int{2, 4, 8}},
		"2, 4":    {sizes: []int{2, 4}},
		"2":       {sizes: []int{2}},
		"2-2":     {sizes: []int{2}},
		"":        {err: "it is empty, " + legal},
		"8-2":     {err: `"8-2" is not legal, ` + legal},
		"2-8/0":   {err: `"2-8/0" is not legal, ` + legal},
		"2-8-9":   {err: `"2-8-9" is not legal, ` + legal},
		"2-":      {err: `"2-" is not legal, ` + legal},
		"0-4":     {err: `"0-4" is not legal, ` + legal},
		"2-10001": {err: `"2-10001" is not legal, ` + legal},
		"2,2":     {err: `"2,2" is not legal, ` + legal},
		"2,4,3":   {err: `"2,4,3" is not legal, ` + legal},
		"two":     {err: `"two" is not legal, ` + legal},
		"2.0":     {err: `"2.0" is not legal, ` + legal},
		"+2":      {err: `"+2" is not legal, ` + legal},
		"3-8":     {err: `"3-8" is not legal, ` + other},
	} {
		sizes, err := ElasticSizes(map[string]string{"tandem-gpu.io/elastic-workers": raw}, 2)
		if diff := cmp.Diff(test.sizes, sizes); diff != "" {
			t.Errorf("%q (-want +got):\n%s", raw, diff)
		}
		if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != "metadata.annotations[tandem-gpu.io/elastic-workers]: "+test.err) {
			t.Errorf("%q: %v\nwant %s", raw, err, test.err)
		}
	}
	if sizes, err := ElasticSizes(nil, 2); sizes != nil || err != nil {
		t.Errorf("a gang that is not elastic: %v, %v", sizes, err)
	}
}

func TestBySizeFields(t *testing.T) {
	const resize, workers = "tandem-gpu.io/elastic-resize", "tandem-gpu.io/elastic-workers"
	for raw, test := range map[string]struct {
		elastic, want bool
		says          string
	}{
		"held-members":  {elastic: true},
		"size-fields":   {elastic: true, want: true},
		"":              {elastic: true, says: "it is empty, it must be held-members, where the scheduler holds members back"},
		"Size-Fields":   {elastic: true, says: `"Size-Fields" is not legal, it must be held-members, where`},
		"size fields":   {says: "or size-fields, where the controller writes the number into the object that makes the members; correct"},
		"size-fields\n": {says: "is not legal"},
	} {
		annotations := map[string]string{resize: raw}
		if test.elastic {
			annotations[workers] = "2-8"
		}
		got, err := BySizeFields(annotations)
		if got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v, %v", raw, got, err)
		}
	}
	if _, err := BySizeFields(map[string]string{resize: "size-fields"}); err == nil || !strings.Contains(err.Error(), "the annotation tandem-gpu.io/elastic-workers is missing: set that one too") {
		t.Errorf("a gang that is not elastic: %v", err)
	}
	if got, err := BySizeFields(nil); got || err != nil {
		t.Errorf("without the annotation: %v, %v", got, err)
	}
}

// workersOf reads members such as "0+ 1- 2 3+x": with a node, leaving from a node, without a node. Names are the ranks,
// and index labels too where numbered is set.
func workersOf(t *testing.T, text []string, numbered bool) (list []Worker) {
	t.Helper()
	for _, word := range text {
		var index int
		var mark string
		if _, err := fmt.Sscanf(word+" ", "%d%s", &index, &mark); err != nil {
			mark = ""
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("w-", index), Labels: map[string]string{}}}
		if numbered {
			pod.Labels["batch.kubernetes.io/job-completion-index"] = fmt.Sprint(index)
		}
		list = append(list, Worker{Rank: RankOf(pod), OnNode: mark != "", Leaving: mark == "-"})
	}
	return list
}

func TestSurplus(t *testing.T) {
	for _, test := range []struct {
		name        string
		members     []string
		numbered    bool
		workers     int
		held, leave []int
	}{
		{"a start", []string{"0", "1", "2", "3"}, true, 2, []int{2, 3}, nil},
		{"enough", []string{"0+", "1+", "2", "3"}, true, 2, []int{2, 3}, nil},
		{"it grows", []string{"0+", "1+", "2", "3"}, true, 3, []int{3}, nil},
		{"it shrinks", []string{"0+", "1+", "2+", "3+"}, true, 2, nil, []int{2, 3}},
		{"they leave", []string{"0+", "1+", "2-", "3+"}, true, 2, nil, []int{3}},
		{"they are back", []string{"0+", "1+", "2", "3"}, true, 2, []int{2, 3}, nil},
		{"one was lost: its number is free", []string{"0+", "2+", "3", "4"}, true, 3, []int{2, 3}, nil},
		{"one was lost, and is back", []string{"0+", "1", "2+", "3", "4"}, true, 3, []int{3, 4}, nil},
		{"one is replaced while it leaves", []string{"0+", "1-", "1", "2+", "3"}, true, 3, []int{4}, nil},
		{"only the last ones run: they stay until the first ones are back", []string{"0", "1", "6+", "7+"}, true, 2, nil, nil},
		{"the first ones are back: the last ones leave", []string{"0+", "1+", "6+", "7+"}, true, 2, nil, []int{2, 3}},
		{"names: one was lost, the next one takes its place", []string{"0+", "2+", "3", "4"}, false, 3, []int{3}, nil},
		{"names: those that run stay", []string{"0", "1+", "2+", "3+"}, false, 3, []int{0}, nil},
		{"names: the last leave", []string{"0", "1+", "2+", "3+"}, false, 2, []int{0}, []int{3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			held, leave := Surplus(workersOf(t, test.members, test.numbered), test.workers)
			if diff := cmp.Diff([][]int{test.held, test.leave}, [][]int{held, leave}); diff != "" {
				t.Errorf("held and leaving (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReach(t *testing.T) {
	for _, test := range []struct {
		members               []string
		numbered              bool
		workers, least, reach int
	}{
		{[]string{"0", "1", "2"}, true, 2, 2, 2},
		{[]string{"0", "1", "5"}, true, 2, 2, 2},
		{[]string{"4", "5", "7"}, true, 3, 2, 6},
		{[]string{"4", "5", "7"}, true, 3, 3, 8},
		{[]string{"4", "5", "7"}, true, 7, 2, 7},
		{[]string{"5"}, true, 3, 2, 3}, // too few exist
		{nil, true, 3, 1, 3},
		{[]string{"4", "5"}, false, 1, 2, 1}, // names say nothing
	} {
		if got := Reach(workersOf(t, test.members, test.numbered), test.workers, test.least); got != test.reach {
			t.Errorf("%v of %d, at least %d: %d, want %d", test.members, test.workers, test.least, got, test.reach)
		}
	}
}

// Nobody starves: with the number that Reach returns, as many members may run as must run, if so many exist.
func TestReachLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var text []string
		for i := range rapid.IntRange(1, 8).Draw(r, "members") {
			if rapid.Bool().Draw(r, "exists") {
				text = append(text, fmt.Sprint(i))
			}
		}
		members := workersOf(t, text, rapid.Bool().Draw(r, "numbered"))
		least := rapid.IntRange(1, 4).Draw(r, "least")
		held, _ := Surplus(members, Reach(members, rapid.IntRange(least, 9).Draw(r, "workers"), least))
		if run := len(members) - len(held); run < min(least, len(members)) && len(members) >= least {
			r.Fatalf("%v: %d run, and %d must", text, run, least)
		}
	})
}

// TestSurplusLaw: as many members as the target stay on nodes, if so many run. Member 0 never leaves. Once those that leave are
// gone, nobody else has to.
func TestSurplusLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		numbered := rapid.Bool().Draw(r, "numbered")
		var text []string
		for i := range rapid.IntRange(1, 8).Draw(r, "members") {
			switch rapid.IntRange(0, 4).Draw(r, "member") {
			case 0:
			case 1:
				text = append(text, fmt.Sprint(i, "-"))
			case 2:
				text = append(text, fmt.Sprint(i))
			default:
				text = append(text, fmt.Sprint(i, "+"))
			}
		}
		members, workers := workersOf(t, text, numbered), rapid.IntRange(1, 9).Draw(r, "workers")
		held, leave := Surplus(members, workers)
		stay, running := 0, 0
		var after []Worker
		for i, m := range members {
			switch {
			case slices.Contains(held, i) && (m.OnNode || m.Leaving), slices.Contains(leave, i) && (!m.OnNode || m.Leaving):
				r.Fatalf("%v: held %v, leave %v", text, held, leave)
			case m.Leaving:
				continue
			case m.OnNode:
				running++
			}
			if slices.Contains(leave, i) {
				continue
			}
			if m.OnNode {
				stay++
			}
			after = append(after, m)
		}
		if stay != min(running, workers) || len(members) > 0 && slices.Contains(leave, 0) {
			r.Fatalf("%v for %d: held %v, leave %v", text, workers, held, leave)
		}
		if _, again := Surplus(after, workers); len(again) > 0 {
			r.Fatalf("%v for %d: leave %v, then %v", text, workers, leave, again)
		}
	})
}
