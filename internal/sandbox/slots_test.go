package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/must"
)

// slotsVariable has TestPlaysHolder hold slots of a folder.
const slotsVariable = "TANDEM_TEST_HOLD_SLOTS"

// two returns two slots in a folder of their own.
func two(t *testing.T) slots { return slots{dir: t.TempDir(), count: 2, progress: io.Discard} }

func take(t *testing.T, s slots, owner string) *slot {
	t.Helper()
	held, err := s.take(t.Context(), owner)
	must.OK(t, err)
	t.Cleanup(held.giveBack)
	return held
}

// full fails unless an owner has to wait.
func full(t *testing.T, s slots, owner string) {
	t.Helper()
	free, holders, err := s.try(owner)
	if err != nil || free != nil || len(holders) != s.count {
		free.giveBack()
		t.Errorf("%q has a slot: %t, holders %q, %v; want it to wait for %d holders", owner, free != nil, holders, err, s.count)
	}
}

// Eight tests take turns: two hold a slot at any time, never three.
func TestSlotsAreNeverMore(t *testing.T) {
	s := two(t)
	var now, turns atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 3 {
				held, err := s.take(t.Context(), fmt.Sprint("Test", i))
				if err != nil {
					t.Error(err)
					return
				}
				if n := now.Add(1); n > 2 {
					t.Errorf("%d hold one of two slots", n)
				}
				turns.Add(1)
				runtime.Gosched()
				now.Add(-1)
				held.giveBack()
			}
		})
	}
	wg.Wait()
	if turns.Load() != 24 {
		t.Errorf("%d turns, want 24", turns.Load())
	}
}

// Tests that need each other's control planes do not wait for each other; tests beside each other do.
func TestWhoWaitsForASlot(t *testing.T) {
	for name, c := range map[string]struct {
		holders []string
		owner   string
		waits   bool
	}{
		"another test":          {[]string{"TestA", "TestB"}, "TestC", true},
		"a test of longer name": {[]string{"TestA", "TestB"}, "TestAB", true},
		"a test beside":         {[]string{"TestA/x", "TestA/y"}, "TestA/z", true},
		"the same test":         {[]string{"TestA", "TestB"}, "TestB", false},
		"a test within":         {[]string{"TestA", "TestB"}, "TestA/x/y", false},
		"beside the process's":  {[]string{"", "TestB"}, "TestA", false},
		"the process again":     {[]string{"TestA", "TestB"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := two(t)
			for _, holder := range c.holders {
				take(t, s, holder)
			}
			if c.waits {
				full(t, s, c.owner)
				return
			}
			if take(t, s, c.owner).file != nil {
				t.Error("three hold one of two slots")
			}
		})
	}
}

func TestSlotsComeBack(t *testing.T) {
	s := two(t)
	first := take(t, s, "TestA")
	take(t, s, "TestB")
	full(t, s, "TestC")
	first.giveBack()
	first.giveBack() // again does no harm
	take(t, s, "TestC")
	full(t, s, "TestD")
}

func TestWaitForASlotEndsWithItsContext(t *testing.T) {
	s := two(t)
	take(t, s, "TestA")
	take(t, s, "TestB/x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.take(ctx, "TestC"); err == nil || !strings.Contains(err.Error(), thisProcess()+" TestB/x") {
		t.Errorf("got %v, want an error that names the holders", err)
	}
}

// TestPlaysHolder is another process that holds a slot, and takes one more for each line that it reads.
func TestPlaysHolder(t *testing.T) {
	dir := os.Getenv(slotsVariable)
	if dir == "" {
		t.Skip("it is the program that other tests of this package start as a second process, and no test by itself")
	}
	s := slots{dir: dir, count: 2, progress: io.Discard}
	lines := bufio.NewScanner(os.Stdin)
	for more := true; more; more = lines.Scan() {
		take(t, s, "TestPlaysHolder")
		fmt.Println("holds")
	}
}

// holder is a process that plays TestPlaysHolder.
type holder struct {
	*exec.Cmd
	more  io.Writer
	lines *bufio.Scanner
}

func startHolder(t *testing.T, s slots) *holder {
	t.Helper()
	h := &holder{Cmd: exec.Command(os.Args[0], "-test.run=^TestPlaysHolder$")}
	h.Env = append(os.Environ(), slotsVariable+"="+s.dir)
	stdout, err := h.StdoutPipe()
	if err == nil {
		h.more, err = h.StdinPipe()
	}
	if err == nil {
		err = h.Start()
	}
	must.OK(t, err)
	t.Cleanup(func() { _ = h.Process.Kill(); _ = h.Wait() })
	h.lines = bufio.NewScanner(stdout)
	h.holds(t)
	return h
}

// holds waits until the process holds one more.
func (h *holder) holds(t *testing.T) {
	t.Helper()
	if !h.lines.Scan() || h.lines.Text() != "holds" {
		t.Fatalf("the other process says %q, want that it holds a slot", h.lines.Text())
	}
}

// The kernel gives back what a killed process held.
func TestSlotsOutliveNoProcess(t *testing.T) {
	s := two(t)
	first := startHolder(t, s)
	startHolder(t, s)
	full(t, s, "TestPlaysHolder") // the owner of that name is in another process
	must.OK(t, first.Process.Kill())
	take(t, s, "TestA")
	full(t, s, "TestB")
}

// Two processes with one slot each get a second one each.
func TestHoldersDoNotWaitForEachOther(t *testing.T) {
	s := two(t)
	pair := []*holder{startHolder(t, s), startHolder(t, s)}
	for _, h := range pair {
		if _, err := io.WriteString(h.more, "one more\n"); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range pair {
		h.holds(t)
	}
}

// A wait that lasts says so, once.
func TestSlotsSayWhatIsAwaited(t *testing.T) {
	s := two(t)
	var progress bytes.Buffer
	s.progress = &progress
	take(t, s, "TestA")
	last := take(t, s, "TestB")
	time.AfterFunc(slotSilence+3*slotInterval, last.giveBack)
	take(t, s, "TestC")
	want := fmt.Sprintf("sandbox: waiting for one of 2 slots of control planes; they are held by %[1]s TestA, %[1]s TestB\n", thisProcess())
	if progress.String() != want {
		t.Errorf("progress %q, want %q", progress.String(), want)
	}
}

// A control plane holds a slot of the machine until it stops.
func TestControlPlaneHoldsASlot(t *testing.T) {
	s, err := machineSlots()
	must.OK(t, err)
	held := func() (n int) {
		files, err := filepath.Glob(filepath.Join(s.dir, "*"))
		must.OK(t, err)
		for _, file := range files {
			if raw, err := os.ReadFile(file); err == nil && string(raw) == thisProcess()+" "+t.Name()+"\n" {
				n++
			}
		}
		return n
	}
	c := StartForTest(t, Options{})
	if n := held(); n != 1 {
		t.Errorf("a control plane that runs holds %d slots, want 1", n)
	}
	c.Stop()
	if n := held(); n != 0 {
		t.Errorf("a control plane that stopped holds %d slots", n)
	}
}
