package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// heartbeat is the time between two "still building" lines. Shorter is noise, longer looks like a hang.
const heartbeat = 10 * time.Second

// builder builds programs of one module into its cache directory.
type builder struct {
	name     string // of the module
	dir      string // of the module
	out      string // where the programs lie
	mod      module
	packages map[string]string // by program
	progress io.Writer
	prepare  func(ctx context.Context) error // what the module needs before a build; nil for nothing
}

func newBuilder(ctx context.Context, name, dir, cache string) (*builder, error) {
	mod := modules()[name]
	key, err := cacheKey(ctx, dir, mod.args)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(cache, "tools", name+"-"+key)
	b := &builder{name: name, dir: dir, out: out, mod: mod, packages: packages(), progress: os.Stderr}
	if name == "gateway" {
		return completed(b), nil
	}
	return b, nil
}

// packages returns the package of each program.
func packages() map[string]string {
	all := map[string]string{}
	for program, t := range catalogue() {
		all[program] = t.pkg
	}
	return all
}

// ensure builds those of the programs that are missing.
func (b *builder) ensure(ctx context.Context, names []string) error {
	if len(b.missing(names)) == 0 {
		return nil
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return fmt.Errorf("make tool cache: %w", err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	missing := b.missing(names) // another process may have built them while this one waited
	if len(missing) == 0 {
		return nil
	}
	b.say("building %s into %s; the first time takes %s, later nothing", strings.Join(missing, ", "), b.out, b.mod.firstTime)
	if b.prepare != nil {
		if err := b.prepare(ctx); err != nil {
			return err
		}
	}
	for i, name := range missing {
		if err := b.build(ctx, name, fmt.Sprintf("%d/%d", i+1, len(missing))); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) missing(names []string) []string {
	var missing []string
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(b.out, name)); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// build makes one program. The program appears under its name only when it is complete.
func (b *builder) build(ctx context.Context, name, of string) error {
	temp, err := os.MkdirTemp(b.out, ".build-*")
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	defer os.RemoveAll(temp)
	args := append([]string{"build", "-o", filepath.Join(temp, name)}, b.mod.args...)
	cmd := goCommand(ctx, b.dir, append(args, b.packages[name])...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	// An interrupted go command ends its compilers itself; after SIGKILL they would go on.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	start := time.Now()
	stop := b.beat(fmt.Sprintf("[%s] still building %s", of, name), start)
	err = cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", name, b.dir, errors.Join(err, ctx.Err()), tail(output.Bytes(), 30))
	}
	if err := os.Rename(filepath.Join(temp, name), filepath.Join(b.out, name)); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	b.say("[%s] built %s in %s", of, name, time.Since(start).Round(time.Second))
	return nil
}

// beat prints the work in progress every heartbeat until the caller calls stop.
func (b *builder) beat(what string, start time.Time) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				b.say("%s, %s", what, time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "tools/%s: %s\n", b.name, fmt.Sprintf(format, args...))
}

// lock takes the cache directory's file lock. The kernel releases it when the process ends.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(b.out, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock tool cache: %w", err)
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for said := false; ; said = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock tool cache %s: %w", b.out, err)
		}
		if !said {
			b.say("waiting for another process that builds into %s", b.out)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for tool cache %s: %w", b.out, ctx.Err())
		case <-ticker.C:
		}
	}
}

// tail returns the last n lines of text.
func tail(text []byte, n int) string {
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}
