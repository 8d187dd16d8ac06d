package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// slotInterval is the time between two looks for a free slot. Longer leaves slots unused, shorter costs processor time.
	slotInterval = 100 * time.Millisecond
	// slotSilence is how long a wait for a slot lasts before a line says so.
	slotSilence = 5 * time.Second
)

// slots bound how many control planes run at the same time, over all processes of a user on this machine. Each takes half a
// gigabyte, and starts fight for the processors: with more of them, deadlines of programs pass on which no test waits.
//
// A slot is a file, and its holder has the file's lock. The kernel gives the lock back when the process ends, however it ends. The
// file says which process holds the slot, and for whom: for the test of that name, or for the whole process ("").
//
// An owner that has a slot gets further ones without waiting, also beyond the count. So does a test beside a control plane of a
// test around it, or of its process: it keeps that one while it waits. Two such owners on a machine with two slots would wait for
// each other forever.
type slots struct {
	dir      string
	count    int
	progress io.Writer
}

// slot is the right to run a control plane. Without a file it is one beyond the count.
type slot struct{ file *os.File }

// machineSlots are those of this machine: as many as processors, and at least two, since a control plane mostly waits.
func machineSlots() (slots, error) {
	cache, err := cacheDir()
	if err != nil {
		return slots{}, err
	}
	count := max(2, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))) // GOMAXPROCS knows the limits of a container
	return slots{dir: filepath.Join(cache, "planes"), count: count, progress: os.Stderr}, nil
}

// take waits for a slot.
func (s slots) take(ctx context.Context, owner string) (*slot, error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of slots: %w", err)
	}
	ticker, silence := time.NewTicker(slotInterval), time.NewTimer(slotSilence)
	defer ticker.Stop()
	defer silence.Stop()
	for {
		free, holders, err := s.try(owner)
		if free != nil || err != nil {
			return free, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for one of %d slots of control planes: %w; they are held by %s", s.count, ctx.Err(), strings.Join(holders, ", "))
		case <-silence.C:
			fmt.Fprintf(s.progress, "sandbox: waiting for one of %d slots of control planes; they are held by %s\n", s.count, strings.Join(holders, ", "))
		case <-ticker.C:
		}
	}
}

// try takes a free slot. Without one it returns who holds the slots, or a slot beyond the count for an owner that must not wait.
func (s slots) try(owner string) (free *slot, holders []string, err error) {
	waits := true
	for i := range s.count {
		path := filepath.Join(s.dir, strconv.Itoa(i))
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("open slot: %w", err)
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			free := &slot{file}
			return free, nil, free.sign(owner)
		}
		file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, nil, fmt.Errorf("lock slot %s: %w", path, err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read slot: %w", err)
		}
		holder, of, _ := strings.Cut(strings.TrimSpace(string(raw)), " ")
		holders = append(holders, strings.TrimSpace(holder+" "+of))
		if holder == thisProcess() && around(of, owner) {
			waits = false
		}
	}
	if !waits {
		return &slot{}, nil, nil
	}
	return nil, holders, nil
}

// around reports whether an owner of this process needs its control plane until the other's has ended: a test around a test, the
// process around all.
func around(outer, inner string) bool {
	return outer == inner || outer == "" || inner == "" || strings.HasPrefix(inner, outer+"/")
}

// thisProcess names the process, for people too.
func thisProcess() string { return fmt.Sprintf("%d:%s", os.Getpid(), filepath.Base(os.Args[0])) }

// sign writes the holder into the file.
func (s *slot) sign(owner string) error {
	text := strings.TrimSpace(thisProcess() + " " + owner)
	err := s.file.Truncate(0)
	if err == nil {
		_, err = s.file.WriteAt([]byte(text+"\n"), 0)
	}
	if err != nil {
		s.giveBack()
		return fmt.Errorf("write slot: %w", err)
	}
	return nil
}

// giveBack ends the right. A second call does nothing.
func (s *slot) giveBack() {
	if s == nil || s.file == nil {
		return
	}
	_ = s.file.Truncate(0) // of the lock nothing but the holder's name is lost
	s.file.Close()
	s.file = nil
}
