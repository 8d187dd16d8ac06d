// Package progress says on stderr what a command does and for how long it has done so, once the command takes longer than people
// wait without a word.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Patience is how long a command may take before it says what it does. A shorter one flickers in front of quick answers, with a
// longer one people think that the command hangs.
const Patience = 2 * time.Second

// every is the time between two updates of the line.
const every = 500 * time.Millisecond

// Line is a line of a terminal that is written anew while steps take their time, and wiped at the end.
type Line struct {
	out    io.Writer
	stop   chan struct{}
	closed sync.Once
	ended  sync.WaitGroup
	mu     sync.Mutex
	doing  string
	began  time.Time
	number int
}

// Start begins a line on a terminal. A nil writer stays silent. The caller ends the line by Close.
func Start(out io.Writer) *Line {
	l := &Line{out: out, stop: make(chan struct{})}
	if out != nil {
		l.began = time.Now()
		l.ended.Go(l.draw)
	}
	return l
}

// Step says what is done from now on.
func (l *Line) Step(doing string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doing, l.number = doing, l.number+1
}

// Close wipes the line. It may be called again.
func (l *Line) Close() {
	l.closed.Do(func() { close(l.stop) })
	l.ended.Wait()
}

// draw writes the line until it is closed.
func (l *Line) draw() {
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	drawn := false
	for {
		select {
		case <-l.stop:
			if drawn {
				fmt.Fprint(l.out, "\r\x1b[K")
			}
			return
		case <-timer.C:
			drawn = l.write() || drawn
			timer.Reset(every)
		}
	}
}

// write writes the line, and reports whether there is anything to say.
func (l *Line) write() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doing == "" {
		return false
	}
	fmt.Fprintf(l.out, "\r\x1b[Kstep %d: %s, %d s so far", l.number, l.doing, int(time.Since(l.began).Seconds()))
	return true
}
