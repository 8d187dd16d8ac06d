// Command runner runs the tests of the module, says how far they are, and shows of a failure what matters.
//
// The runner reads the output of `go test -json`. Standard output gets what `go test` prints for a package that passes,
// a line. Of a package that fails it gets the lines of the failed tests, without those of klog, and the name of a file
// with the whole output of the package. Standard error gets a line after ten seconds without output. With rounds the
// runner repeats the tests. With load it runs them beside processes that keep the processors busy, and a table at the
// end has the number of failures of each test.
//
// The runner imports the standard library alone, so that it runs seconds after a checkout, before any other
// compilation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the arguments of the command line.
type options struct {
	packages []string
	// rounds is the number of runs, load how many times the number of processors run busy beside them.
	rounds int
	load   float64
	// log is a directory for the whole output of packages that failed. Its former contents go.
	log string
	// flags go to go test.
	flags []string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == busyCommand {
		busy(os.Args[2])
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	passed, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}

func parse(arguments []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	packages := flags.String("packages", "./...", "the packages, between blanks")
	flags.IntVar(&o.rounds, "rounds", 1, "how often the tests are run")
	flags.Float64Var(&o.load, "load", 0, "how many times the number of processors run busy beside the tests")
	flags.StringVar(&o.log, "log", filepath.Join("bin", "failed"), "directory for the whole output of packages that failed")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: runner [flags] [-- flags of go test]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.load < 0 {
		return o, fmt.Errorf("-rounds is %d and -load is %g: there is at least one round, and the load is not negative", o.rounds, o.load)
	}
	o.packages, o.flags = strings.Fields(*packages), flags.Args()
	if len(o.packages) == 0 {
		return o, errors.New("no package is named: -packages is blank")
	}
	return o, nil
}

// run runs all rounds. The result says whether every test passed.
func run(ctx context.Context, arguments []string, out, progress io.Writer) (bool, error) {
	o, err := parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	packages, err := list(ctx, o)
	if err != nil {
		return false, err
	}
	if err := os.RemoveAll(o.log); err != nil {
		return false, err
	}
	loops, err := startLoops(int(o.load * float64(runtime.NumCPU())))
	defer loops.stop()
	if err != nil {
		return false, err
	}
	history := &history{rounds: o.rounds, loops: len(loops)}
	for round := 1; round <= o.rounds; round++ {
		r := newReport(out, progress, packages)
		r.log = o.log
		if o.rounds > 1 {
			fmt.Fprintf(out, "=== round %d of %d, beside %d busy loops on %d processors\n", round, o.rounds, len(loops), runtime.NumCPU())
			r.log = filepath.Join(o.log, fmt.Sprintf("round-%d", round))
		}
		if err := r.test(ctx, o); err != nil {
			return false, err
		}
		history.add(r)
	}
	if o.rounds > 1 {
		history.print(out)
	}
	return len(history.failures) == 0, nil
}

// list returns the import paths of the packages.
func list(ctx context.Context, o options) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "--"}, o.packages...)...)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages %s: %w", strings.Join(o.packages, " "), err)
	}
	packages := strings.Fields(string(raw))
	if len(packages) == 0 {
		return nil, fmt.Errorf("no package matches %s", strings.Join(o.packages, " "))
	}
	return packages, nil
}

// test runs go test once and follows it to its end.
func (r *report) test(ctx context.Context, o options) error {
	arguments := append([]string{"test", "-json"}, o.flags...)
	cmd := exec.CommandContext(ctx, "go", append(arguments, r.packages...)...)
	cmd.Stderr = os.Stderr
	// Ctrl-C in a terminal reaches this process alone, which then ends go test and all that it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	r.follow(read(stdout), ticker.C)
	err = cmd.Wait()
	if cause := ctx.Err(); cause != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the rest of the group, if any
		return fmt.Errorf("the tests were interrupted: %w", cause)
	}
	if err != nil && !r.failed() {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
