package sandbox_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// orphanVariable makes the test binary play a process that starts a program and is then killed.
const orphanVariable = "TANDEM_TEST_PLAY_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanVariable); dir != "" {
		playParent(dir)
	}
	os.Exit(m.Run())
}

func playParent(dir string) {
	// Started from a goroutine whose thread ends: only the death of the process may end the program.
	started := make(chan *sandbox.Process)
	go func() {
		p, err := sandbox.NewProcesses(dir).Start("sleep", exec.Command("sleep", "600"))
		if err != nil {
			panic(err)
		}
		started <- p
	}()
	fmt.Println((<-started).PID())
	select {}
}

func TestProcessesDieWithTheirParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), orphanVariable+"="+t.TempDir())
	stdout, err := parent.StdoutPipe()
	must.OK(t, err)
	must.OK(t, parent.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must.OK(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must.OK(t, err)
	if !alive(pid) {
		t.Fatalf("process %d does not run before the parent is killed", pid)
	}
	must.OK(t, parent.Process.Kill())
	_ = parent.Wait() // killed, as it should be
	eventually(t, func() error {
		if alive(pid) {
			return fmt.Errorf("process %d outlives its parent", pid)
		}
		return nil
	})
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(after, []byte("Z"))
}

func TestStopGivesGraceThenKills(t *testing.T) {
	set := sandbox.NewProcesses(t.TempDir())
	defer set.Stop(0)
	start := func(name, script string) *sandbox.Process {
		t.Helper()
		p, err := set.Start(name, exec.Command("sh", "-c", script))
		must.OK(t, err)
		eventually(t, func() error {
			if got := p.Tail(1); got != "ready" {
				return fmt.Errorf("output %q, want ready", got)
			}
			return nil
		})
		return p
	}
	polite := start("polite", `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	stubborn := start("stubborn", `trap '' TERM; echo ready; while :; do sleep 0.05; done`)

	polite.Stop(5 * time.Minute) // only a hang takes so long
	if got := polite.Tail(1); got != "bye" {
		t.Errorf("the last words of a program that heeds SIGTERM: %q, want bye", got)
	}
	stubborn.Stop(100 * time.Millisecond)
	<-stubborn.Done()
	if got := stubborn.Err(); got == nil || got.Error() != "signal: killed" {
		t.Errorf("a program that ignores SIGTERM ended with %v, want killed", got)
	}
}
