package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/estimate"
)

// Progress shows how many of several steps are complete, and how long the others will take: as one bar on a terminal, else as a line every few
// seconds without the estimate.
// Several goroutines may use it.
type Progress struct {
	// Out receives the text; nil for none.
	Out io.Writer
	// Terminal says that Out understands a carriage return.
	Terminal bool
	// Now is the clock.
	Now func() time.Time
	// What names the counted things: "runs".
	What string
	// Parts is the number of steps that make one of What; 0 means 1.
	Parts int

	mu    sync.Mutex
	began time.Time
	first int // how many were complete then
	last  time.Time
	drawn bool
}

// Intervals between two updates: a terminal shows the last one only, a log grows.
const (
	drawEvery = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

// estimateAfter is the time before which nothing is estimated: the first steps say little about the others.
const estimateAfter = 2 * time.Second

// barWidth is the length of the bar in characters.
const barWidth = 30

// Step shows that done of total steps are complete. The first line comes after lineEvery only, so a short run leaves a
// log alone.
func (p *Progress) Step(done, total int) {
	if p.Out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Now()
	if p.began.IsZero() {
		p.began, p.first = now, done
		if !p.Terminal {
			p.last = now
		}
	}
	every := lineEvery
	if p.Terminal {
		every = drawEvery
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	if !p.Terminal {
		fmt.Fprintf(p.Out, "%s %s done after %v\n", p.count(done, total, " of "), p.What, now.Sub(p.began).Round(time.Second))
		return
	}
	filled := barWidth * done / max(total, 1)
	bar := strings.Repeat("█", filled) + strings.Repeat("░", barWidth-filled)
	fmt.Fprintf(p.Out, "\r\x1b[K%s %s %s%s", bar, p.count(done, total, "/"), p.What, p.left(done, total, now))
	p.drawn = true
}

// left writes how long the steps that are not complete will take, by the time since the first call.
func (p *Progress) left(done, total int, now time.Time) string {
	within := now.Sub(p.began)
	if within < estimateAfter {
		return ""
	}
	words := estimate.Words(float64(done-p.first)/float64(max(total-p.first, 1)), within)
	if words == "" {
		return ""
	}
	return ", " + words
}

// count writes how many of how many are complete, the former with a decimal where one of them has several steps.
func (p *Progress) count(done, total int, of string) string {
	if p.Parts <= 1 {
		return fmt.Sprint(done, of, total)
	}
	return fmt.Sprintf("%.1f%s%d", float64(done)/float64(p.Parts), of, total/p.Parts)
}

// Close wipes the bar from the terminal.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.Out, "\r\x1b[K")
		p.drawn = false
	}
}
