package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The test binary is the program too, where its first argument says so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"program", busyCommand}, os.Args[1]) {
		if os.Args[1] == "program" {
			os.Args = os.Args[1:]
		}
		main()
		return
	}
	os.Exit(m.Run())
}

// The output of a package that passes is its line, that of one that fails is what its failing tests said.
func TestReport(t *testing.T) {
	recorded, err := os.Open(filepath.Join("testdata", "events.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer recorded.Close()
	var out, progress bytes.Buffer
	r := newReport(&out, &progress, make([]string, 5))
	r.log = filepath.Join(t.TempDir(), "failed")
	r.follow(read(recorded), nil)

	want, err := os.ReadFile(filepath.Join("testdata", "report.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), strings.ReplaceAll(out.String(), r.log, "LOG")); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
	said := "test: 3 of 5 packages failed in 0s: a, c, e\n"
	if diff := cmp.Diff(said, regexp.MustCompile(`\d+s`).ReplaceAllString(progress.String(), "0s")); diff != "" {
		t.Errorf("the last line of the progress (-want +got):\n%s", diff)
	}
	whole, err := os.ReadFile(filepath.Join(r.log, "a.log"))
	if err != nil || !strings.Contains(string(whole), `a line of klog`) {
		t.Errorf("the whole output of the package is kept as %q, %v, want one with the line of klog", whole, err)
	}
}

// sharedBuffer is a buffer that one goroutine reads while another writes.
type sharedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// A line on the progress comes when nothing was printed for a while, and only then.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var progress sharedBuffer
		r := newReport(&out, &progress, make([]string, 5))
		events := make(chan event)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.follow(events, ticker.C)
		}()
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		send := func(action, name, test, output string) {
			events <- event{Action: action, Package: "example.com/me/m/" + name, Test: test, Output: output}
			synctest.Wait()
		}
		wait(10500 * time.Millisecond)
		send("start", "a", "", "")
		wait(time.Second)
		for _, name := range []string{"b", "c", "d"} {
			send("start", name, "", "")
		}
		send("run", "b", "TestB", "")
		wait(9 * time.Second) // a line at second 20
		send("output", "a", "", "ok  \texample.com/me/m/a\t10s\n")
		send("pass", "a", "", "") // at 20.5: the next line is due at 31
		wait(10 * time.Second)
		if got := strings.Count(progress.String(), "\n"); got != 2 {
			t.Errorf("%d lines on the progress within 10 s after a package was printed, want the two before:\n%s", got, progress.String())
		}
		wait(time.Second)
		close(events)
		<-done
		want := `test: 0 of 5 packages done after 10s; the next are being compiled
test: 0 of 5 packages done after 20s, 4 running: a for 10s, b for 9s (TestB), c for 9s, 1 more
test: 1 of 5 packages done after 31s, 3 running: b for 20s (TestB), c for 20s, d for 20s
test: 1 of 5 packages passed in 32s
`
		if diff := cmp.Diff(want, progress.String()); diff != "" {
			t.Errorf("the progress (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff("ok  \texample.com/me/m/a\t10s\n", out.String()); diff != "" {
			t.Errorf("the output (-want +got):\n%s", diff)
		}
	})
}

// module makes a module with files in the working directory of the test.
func module(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	files["go.mod"] = "module example.com/me/m\n\ngo 1.26.0\n"
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A test that fails in the second of three rounds is in the table, with the seed of the round.
func TestRounds(t *testing.T) {
	module(t, map[string]string{
		"whole/whole_test.go": "package whole\n\nimport \"testing\"\n\nfunc TestWhole(t *testing.T) {}\n",
		"flaky/flaky_test.go": `package flaky

import (
	"os"
	"testing"
)

func TestFlaky(t *testing.T) {
	t.Run("second", func(t *testing.T) {
		file, err := os.OpenFile("rounds", os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		file.WriteString("x")
		if is, err := file.Stat(); err != nil || is.Size() == 2 {
			t.Error("this is the second round", err)
		}
	})
}
`,
	})
	var out, progress bytes.Buffer
	passed, err := run(t.Context(), []string{"-rounds=3", "-load=.5", "--", "-count=1", "-shuffle=on"}, &out, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if passed {
		t.Error("all passed, although a test failed in a round")
	}
	row := regexp.MustCompile(`(?m)^1 of 3 +flaky +TestFlaky/second +[0-9]+$`)
	if !row.MatchString(out.String()) || strings.Count(out.String(), "this is the second round") != 1 ||
		strings.Count(out.String(), "ok  \texample.com/me/m/whole") != 3 {
		t.Errorf("the output has not one failure, three lines of the package that passes and a row %s:\n%s", row, &out)
	}
	out.Reset()
	if passed, err := run(t.Context(), []string{"-packages=./whole", "-rounds=2"}, &out, &progress); err != nil || !passed {
		t.Errorf("two rounds of the package that passes: %v, %v", passed, err)
	}
	if !strings.Contains(out.String(), "no test failed in 2 rounds") {
		t.Errorf("the output does not say that no test failed:\n%s", &out)
	}
}

func TestRefused(t *testing.T) {
	module(t, map[string]string{"whole/whole_test.go": "package whole\n"})
	for _, test := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"-rounds=0"}, "-rounds is 0 and -load is 0: there is at least one round, and the load is not negative"},
		{[]string{"-packages=./none"}, "list the packages ./none: exit status 1"},
		{[]string{"-packages= "}, "no package is named: -packages is blank"},
		{[]string{"-packages=./whole", "--", "-p=many"}, "go test: exit status 2"},
	} {
		var out, progress bytes.Buffer
		if passed, err := run(t.Context(), test.arguments, &out, &progress); err == nil || passed || err.Error() != test.want {
			t.Errorf("%q: %v, %v, want %s", test.arguments, passed, err, test.want)
		}
	}
}

// An interrupt ends the test that runs and the busy loops.
func TestInterrupt(t *testing.T) {
	module(t, map[string]string{"hangs/hangs_test.go": `package hangs

import (
	"os"
	"strconv"
	"testing"
)

func TestHangs(t *testing.T) {
	if err := os.WriteFile("new", []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("new", "pid"); err != nil {
		t.Fatal(err)
	}
	select {}
}
`})
	cmd := exec.Command(executable(t), "program", "-load=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var raw []byte
	await(t, "the test runs", func() bool {
		var err error
		raw, err = os.ReadFile(filepath.Join("hangs", "pid"))
		return err == nil
	})
	hanging, err := strconv.Atoi(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	started := children(t, cmd.Process.Pid)
	if len(started) < 2 {
		t.Errorf("the program has the children %v, want go test and a busy loop at least", started)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the program ended as if all had passed")
	}
	for _, pid := range append(started, hanging) {
		await(t, fmt.Sprintf("process %d has ended", pid), func() bool { return ended(pid) })
	}
}

// The busy loops end also where nothing could end them.
func TestLoopsEndWithTheirParent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("%s %s $$ & echo $!; wait", executable(t), busyCommand))
	stdout, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	loop, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	cancel() // kills the shell
	_ = shell.Wait()
	await(t, "the busy loop has ended", func() bool { return ended(loop) })
}

func executable(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// children returns the processes whose parent is the given one.
func children(t *testing.T, parent int) []int {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, thread := range threads {
		raw, err := os.ReadFile(thread)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.Fields(string(raw)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

// ended returns whether a process is gone, or only waits for its parent to notice.
func ended(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(raw), ") ")
	return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X")
}

// await asks until the answer is yes. Only a hang reaches its deadline.
func await(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ask(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 5 minutes until %s", what)
		}
	}
}
