package server

import (
	"net"
	"sync"
	"time"
)

// pacer lets a number of bytes a second pass, in both directions and over all connections together, as the network card of a
// node does.
type pacer struct {
	perSecond float64

	mu   sync.Mutex
	free time.Time // when what has passed has had its time
}

// pass waits until n bytes have had their time.
func (p *pacer) pass(n int) {
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / p.perSecond * float64(time.Second)))
	wait := p.free.Sub(now)
	p.mu.Unlock()
	time.Sleep(wait)
}

// paced is a connection whose bytes the pacer counts.
type paced struct {
	net.Conn
	pacer *pacer
}

// chunk is how many bytes pass at once; a larger one makes small messages wait for longer.
const chunk = 256 << 10

func (c *paced) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), chunk)])
	c.pacer.pass(n)
	return n, err
}

func (c *paced) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := c.Conn.Write(b[done:min(len(b), done+chunk)])
		c.pacer.pass(n)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
