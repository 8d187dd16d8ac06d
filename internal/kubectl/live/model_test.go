package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/kubectl/consumption"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// asked counts the questions of a model: the first, and the others.
type asked struct{ first, later int }

// start returns a model that has seen a cluster of so many pods of a tenth of a device each, in turn of the namespaces a and b.
func start(t *testing.T, pods int) (Model, *asked) {
	t.Helper()
	var devices []string
	for p := 0; p < pods; {
		var here []string
		for ; p < pods && len(here) < 10; p++ {
			here = append(here, fmt.Sprintf("%s/p%02d:1", []string{"a", "b"}[p%2], p))
		}
		devices = append(devices, fmt.Sprintf("g%d A100 [%s]", len(devices), strings.Join(here, " ")))
	}
	c, err := testkit.Parse("n1: " + strings.Join(devices, " | "))
	if err != nil {
		t.Fatal(err)
	}
	count := &asked{}
	m := Model{By: consumption.ByPod, Order: consumption.Name}
	m.Ask = func(first bool) tea.Cmd {
		if first {
			count.first++
		} else {
			count.later++
		}
		return nil
	}
	m.Init()
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at, Nodes: []snapshot.Node{snapshot.NodeOf(c.Nodes()[0])}}
	return send(t, m, Seen{Snapshot: s}, tea.WindowSizeMsg{Width: 80, Height: 8}), count
}

func send(t *testing.T, m Model, messages ...tea.Msg) Model {
	t.Helper()
	for _, msg := range messages {
		next, _ := m.Update(msg)
		m = next.(Model)
	}
	return m
}

// keys are key presses: a letter, or one of the names below.
func keys(all ...string) (messages []tea.Msg) {
	codes := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown,
		"home": tea.KeyHome, "end": tea.KeyEnd, "backspace": tea.KeyBackspace,
	}
	for _, k := range all {
		if code, named := codes[k]; named {
			messages = append(messages, tea.KeyPressMsg{Code: code})
		} else {
			messages = append(messages, tea.KeyPressMsg{Code: rune(k[0]), Text: k})
		}
	}
	return messages
}

// names are those on the screen.
func names(m Model) (all []string) {
	for _, l := range m.lines()[3:] {
		if strings.Contains(l, "0.10") {
			all = append(all, strings.Fields(l)[0])
		}
	}
	return all
}

// The screen shows as many rows as it has room for, and scrolls no further than to the last.
func TestScroll(t *testing.T) {
	m, _ := start(t, 10)
	for _, step := range []struct {
		keys []string
		want string
	}{
		{nil, "a/p00 a/p02 a/p04 a/p06"},
		{[]string{"down"}, "a/p02 a/p04 a/p06 a/p08"},
		{[]string{"end"}, "b/p03 b/p05 b/p07 b/p09"},
		{[]string{"pgdown", "down"}, "b/p03 b/p05 b/p07 b/p09"},
		{[]string{"pgup"}, "a/p04 a/p06 a/p08 b/p01"},
		{[]string{"home", "up"}, "a/p00 a/p02 a/p04 a/p06"},
	} {
		m = send(t, m, keys(step.keys...)...)
		if got := strings.Join(names(m), " "); got != step.want {
			t.Errorf("after %v: %s, want %s", step.keys, got, step.want)
		}
		if got := len(m.lines()); got > m.height {
			t.Errorf("after %v: %d lines on %d", step.keys, got, m.height)
		}
	}
}

// The keys of the help sort and group; a namespace is typed, and letters that no namespace has are left out.
func TestKeys(t *testing.T) {
	m, _ := start(t, 4)
	for key, order := range orders {
		if got := send(t, m, keys(key)...); got.Order != order || !strings.Contains(got.head(), "sorted by "+order) {
			t.Errorf("%s sorts by %s", key, got.Order)
		}
	}
	grouped := m
	for _, want := range []string{consumption.ByNamespace, consumption.ByNode, consumption.ByDevice, consumption.ByPod} {
		if grouped = send(t, grouped, keys("b")...); grouped.By != want {
			t.Errorf("by %s, want %s", grouped.By, want)
		}
	}
	narrow := send(t, m, keys("/", "b", "!", "x", "backspace", "enter")...)
	if diff := cmp.Diff([]string{"b/p01", "b/p03"}, names(narrow)); diff != "" || narrow.Namespace != "b" {
		t.Errorf("namespace %q: %s", narrow.Namespace, diff)
	}
	if kept := send(t, narrow, keys("/", "x", "esc")...); kept.Namespace != "b" || kept.typing {
		t.Errorf("esc keeps no namespace: %q", kept.Namespace)
	}
	if all := send(t, narrow, keys("/", "backspace", "enter")...); len(names(all)) != 4 {
		t.Errorf("no namespace shows %v", names(all))
	}
	if helped := send(t, m, keys("?")...); !strings.Contains(strings.Join(helped.lines(), "\n"), "WASTE     GPUs that they hold and do not use") {
		t.Errorf("the help says %v", helped.lines())
	}
	for _, k := range []string{"q", "esc"} {
		if _, c := m.Update(keys(k)[0]); c == nil || c() != tea.Quit() {
			t.Errorf("%s does not quit", k)
		}
	}
}

// After each answer the model asks again. Without an answer it keeps what it had, and says why, until there is one.
func TestAnswers(t *testing.T) {
	m, count := start(t, 2)
	failed := send(t, m, Seen{Err: errors.New("the scheduler does not answer\x1b[2J")})
	if got := failed.lines(); len(names(failed)) != 2 || got[1] != "the scheduler does not answer [2J" {
		t.Errorf("after an error: %q", got)
	}
	if again := send(t, failed, Seen{Snapshot: failed.seen}); again.lines()[1] != "" {
		t.Errorf("after the next answer: %q", again.lines()[1])
	}
	if *count != (asked{1, 3}) {
		t.Errorf("asked %+v", *count)
	}
	none := Model{By: consumption.ByPod, Order: consumption.Name}
	if got := none.lines(); got[2] != "asking the scheduler" {
		t.Errorf("before the first answer: %q", got)
	}
}
