package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	narrowest = 80
	widest    = 120
)

// terminal prints progress lines, with colours and the terminal's width where there is one.
type terminal struct {
	out     io.Writer
	colours bool
	width   int
	start   time.Time
	mu      sync.Mutex
}

func newTerminal(file *os.File) *terminal {
	t := &terminal{out: file, width: narrowest + 20, start: time.Now()}
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" {
		t.colours = true
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
		t.width = columns
	}
	t.width = min(max(t.width, narrowest), widest)
	return t
}

// say prints a line with the time since the start.
func (t *terminal) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%s %s\n", paint(t.colours, grey, fmt.Sprintf("%5.1fs", time.Since(t.start).Seconds())), fmt.Sprintf(format, args...))
}

// heartbeat is how often a long wait says that it goes on.
const heartbeat = 10 * time.Second

// still says what goes on, now and then until the caller ends it.
func (t *terminal) still(what string) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				t.say("still %s", what)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func (t *terminal) print(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprint(t.out, text)
}

// colour is an ANSI attribute.
type colour string

const (
	grey   colour = "90"
	red    colour = "31"
	bold   colour = "1"
	green  colour = "30;42"
	blue   colour = "97;44"
	yellow colour = "30;43"
)

func paint(colours bool, c colour, text string) string {
	if !colours || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
