package consumption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawn is a snapshot of a few nodes on which some pods are measured.
func drawn(t *rapid.T) *snapshot.Snapshot {
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Unix(1_800_000_000, 0).UTC()}
	for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		var devices []string
		for d := range rapid.IntRange(1, 3).Draw(t, "devices") {
			var pods []string
			for free, p := 10, 0; free > 0; p++ {
				slots := rapid.IntRange(1, 10).Draw(t, "slots")
				if free -= slots; free >= 0 {
					pods = append(pods, fmt.Sprintf("%s/p%d%d%d:%d", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace"), n, d, p, slots))
				}
			}
			device := fmt.Sprintf("g%d A100", d)
			if len(pods) > 0 {
				device += " [" + strings.Join(pods, " ") + "]"
			}
			devices = append(devices, device)
		}
		c, err := testkit.Parse(fmt.Sprintf("n%d: %s", n, strings.Join(devices, " | ")))
		must.OK(t, err)
		s.Nodes = append(s.Nodes, snapshot.NodeOf(c.Nodes()[0]))
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			measure(t, &s.Nodes[i].Pods[k])
		}
		for k := range rapid.IntRange(0, 2).Draw(t, "overbooked") {
			n := &s.Nodes[i]
			name := snapshot.NameOf(fmt.Sprintf("%s/o%d%d", rapid.SampledFrom([]string{"a", "d"}).Draw(t, "namespace"), i, k), vgpu.UID(fmt.Sprintf("o%d%d", i, k)))
			n.Overbooked = append(n.Overbooked, snapshot.Overbooked{Name: name, Devices: []vgpu.DeviceID{n.Devices[0].ID}, Slots: 3})
		}
	}
	return s
}

func measure(t *rapid.T, p *snapshot.Pod) {
	for _, device := range p.Containers[0].Devices {
		on := snapshot.On{Device: device, SlowdownMilli: rapid.Int64Range(0, 3000).Draw(t, "slowdown")}
		if rapid.Bool().Draw(t, "measured") {
			percent := rapid.IntRange(0, 100).Draw(t, "sm")
			on.SMPercent = &percent
		}
		if rapid.Bool().Draw(t, "memory measured") {
			used := rapid.Map(rapid.Int64Range(0, 40), func(g int64) vgpu.Bytes { return vgpu.Bytes(g << 30) }).Draw(t, "used")
			on.MemoryUsedBytes = &used
		}
		p.On = append(p.On, on)
	}
}

// totals adds rows up, without what one of them alone has.
func totals(rows []Row) Row {
	var sum Row
	for i := range rows {
		r := &rows[i]
		sum.Pods += r.Pods
		sum.Unmeasured += r.Unmeasured
		sum.HeldMilli += r.HeldMilli
		sum.HeldBytes += r.HeldBytes
		sum.SlowdownMilli = max(sum.SlowdownMilli, r.SlowdownMilli)
		sum.Overbooked = append(sum.Overbooked, r.Overbooked...)
		if r.UsedMilli != nil {
			sum.UsedMilli, sum.WasteMilli = plus(sum.UsedMilli, *r.UsedMilli), plus(sum.WasteMilli, *r.WasteMilli)
		}
		if r.UsedBytes != nil {
			sum.UsedBytes = plus(sum.UsedBytes, *r.UsedBytes)
		}
	}
	slices.SortFunc(sum.Overbooked, func(a, b Overbooked) int { return strings.Compare(a.Pod, b.Pod) })
	return sum
}

// The rows of each group add up to the same. Each row has names of its own, and nothing is wasted that is not held.
func TestPropertyGroupsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		var want Row
		for i, by := range Groups() {
			rows, err := Rows(s, by)
			must.OK(t, err)
			if got := totals(rows); i == 0 {
				want = got
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("pods and rows by %s differ: %s", by, diff)
			}
			seen := map[string]bool{}
			for _, r := range rows {
				key := r.Name + string(r.UID)
				if seen[key] || r.WasteMilli != nil && *r.WasteMilli > r.HeldMilli || r.Unmeasured > r.Pods {
					t.Fatalf("by %s: %+v", by, r)
				}
				seen[key] = true
			}
		}
	})
}

// Sorted rows have the most first and the unknown last, whatever their order was.
func TestPropertySort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, err := Rows(drawn(t), ByPod)
		must.OK(t, err)
		order := rapid.SampledFrom(Orders()).Draw(t, "order")
		Sort(rows, order)
		other := rapid.Permutation(rows).Draw(t, "other")
		Sort(other, order)
		if diff := cmp.Diff(rows, other); diff != "" {
			t.Fatal(diff)
		}
		for i := 1; i < len(rows); i++ {
			if amount(&rows[i], order) > amount(&rows[i-1], order) {
				t.Fatalf("by %s row %d comes after row %d", order, i, i-1)
			}
		}
		if order == Waste && len(rows) > 0 && rows[0].WasteMilli == nil && slices.ContainsFunc(rows, func(r Row) bool { return r.WasteMilli != nil }) {
			t.Fatal("a pod that nobody has measured is first")
		}
	})
}

// No line is longer than the terminal is wide, and all have the same columns.
func TestPropertyTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		by, width := rapid.SampledFrom(Groups()).Draw(t, "by"), rapid.IntRange(1, 120).Draw(t, "width")
		rows, err := Rows(drawn(t), by)
		must.OK(t, err)
		lines := Table(rows, by, width)
		if len(lines) != len(rows)+1 {
			t.Fatalf("%d lines for %d rows", len(lines), len(rows))
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > width {
				t.Fatalf("%d letters on %d: %q", n, width, l)
			}
		}
	})
}

func TestUnknownGroup(t *testing.T) {
	if _, err := Rows(&snapshot.Snapshot{}, "rack"); err == nil || err.Error() != `group "rack", legal are [pod namespace node device]` {
		t.Error(err)
	}
}

// The table cuts long names in front of the numbers, and leaves out characters that a terminal takes for commands.
func TestTable(t *testing.T) {
	rate := int64(45_678_900)
	rows := []Row{{Name: "a/train\x1b[2J-with-a-long-name", Node: "n1", HeldMilli: 400, HeldBytes: 16 << 30, RateMicro: &rate}}
	for width, want := range map[int]string{
		66: `
POD               NODE  HELD  USED  WASTE  MEMORY  SLOWDOWN   RATE
a/train [2J-wit…  n1    0.40     -      -  -/16Gi         -  45.68`,
		60: `
POD           NODE  HELD  USED  WASTE  MEMORY  SLOWDOWN   R…
a/train [2J…  n1    0.40     -      -  -/16Gi         -  45…`,
	} {
		if diff := cmp.Diff(want, "\n"+strings.Join(Table(rows, ByPod, width), "\n")); diff != "" {
			t.Errorf("on %d letters: %s", width, diff)
		}
	}
}
