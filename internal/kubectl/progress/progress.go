// Package progress says on stderr what a command does, how far it is, and how long it has taken and will still take, once the command takes
// longer than people wait without a word.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/estimate"
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
	// share is the part of the counted steps that is done, since the first of them began.
	share   float64
	counted time.Time
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

// Part says that done of so many equal parts are done, whatever the steps are. The caller begins with 0: the time left is estimated by the
// time from then on.
func (l *Line) Part(done, of int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if done <= 0 || of <= 0 || l.counted.IsZero() {
		l.share, l.counted = 0, time.Now()
		return
	}
	l.share = min(1, float64(done)/float64(of))
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
	fmt.Fprintf(l.out, "\r\x1b[Kstep %d: %s, %d s so far%s", l.number, l.doing, int(time.Since(l.began).Seconds()), l.rest())
	return true
}

// rest writes how much of the counted steps is done, and how long the others will take.
func (l *Line) rest() string {
	if l.share == 0 {
		return ""
	}
	text := fmt.Sprintf(", %d %% done", int(100*l.share))
	if left := estimate.Words(l.share, time.Since(l.counted)); left != "" {
		text += ", " + left
	}
	return text
}
