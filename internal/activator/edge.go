package activator

import (
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
)

// The activator stands between tenants who do not trust each other and, mostly, behind a login that judges paths. This file has what a proxy
// there must do to the requests and answers that it passes on; docs/guides/notebooks.md has the list.

// decodings is how many times an escape may itself be escaped for a path to be judged.
const decodings = 3

// ambiguous reports whether a proxy that cleans paths, before the activator or behind it, may take a path for another one: it has segments of one
// or two dots or of nothing, as they are or escaped, once or several times.
func ambiguous(escaped string) bool {
	for range decodings {
		plain := strings.ReplaceAll(escaped, `\`, "/")
		segments := strings.Split(plain, "/")
		for i, s := range segments {
			s, _, _ = strings.Cut(s, ";") // some servers take what follows for a parameter
			if s == "." || s == ".." || s == "" && i > 0 && i < len(segments)-1 {
				return true
			}
		}
		decoded, err := url.PathUnescape(escaped)
		if err != nil || decoded == escaped {
			return false
		}
		escaped = decoded
	}
	return true
}

// strip takes out of a request what is meant for the login alone.
func (o *Options) strip(h http.Header) {
	for _, name := range o.StripHeaders {
		h.Del(name)
	}
	all := h["Cookie"]
	if len(all) == 0 || len(o.StripCookies) == 0 {
		return
	}
	h.Del("Cookie")
	for _, line := range all {
		var kept []string
		for _, c := range strings.Split(line, ";") {
			if name, _, _ := strings.Cut(strings.TrimSpace(c), "="); !o.stripsCookie(name) {
				kept = append(kept, strings.TrimSpace(c))
			}
		}
		if len(kept) > 0 {
			h.Add("Cookie", strings.Join(kept, "; "))
		}
	}
}

// stripsCookie reports whether a cookie is one of the login's. A name may have a * in it: logins divide long cookies.
func (o *Options) stripsCookie(name string) bool {
	for _, pattern := range o.StripCookies {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// clean takes out of an answer what speaks for the whole host: a server may not clear what the browser keeps of others, serve their pages by a
// worker of its own, nor replace the cookies of the login.
func (o *Options) clean(answer *http.Response) error {
	answer.Header.Del("Clear-Site-Data")
	answer.Header.Del("Service-Worker-Allowed")
	set := answer.Header["Set-Cookie"]
	answer.Header.Del("Set-Cookie")
	for _, c := range set {
		if name, _, _ := strings.Cut(c, "="); !o.stripsCookie(strings.TrimSpace(name)) {
			answer.Header.Add("Set-Cookie", c)
		}
	}
	return nil
}

// restWithin is how long a client may go on sending the body of a request that was answered. Longer, clients that never send it have connections that
// count for no namespace; shorter, one that reads its answer late may find the connection reset.
const restWithin = time.Second

// bodyUntil bounds the time in which a body comes; the zero time is no bound.
func bodyUntil(w http.ResponseWriter, r *http.Request, at time.Time) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(at) // a connection that is gone has none
	}
}

// begin notes a request that is served, and returns how to end that; nil where there are too many, in the namespace or in all. Connections that
// became WebSockets are counted here alone.
func (a *Activator) begin(namespace string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.servedAll >= a.options.MostConnections || a.served[namespace] >= max(1, a.options.MostConnections/eachPart) {
		return nil
	}
	a.served[namespace]++
	a.servedAll++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.servedAll--
		if a.served[namespace]--; a.served[namespace] == 0 {
			delete(a.served, namespace)
		}
	}
}

// Bounded keeps at most so many connections of a server open. For one more it closes one that has no request, the oldest first, and the new one
// where all have some.
type Bounded struct {
	most int

	mu sync.Mutex
	// open are all connections, and resting those without a request, in the order in which they came to rest.
	open    map[net.Conn]bool
	resting []net.Conn
}

// NewBounded returns a bound without connections.
func NewBounded(most int) *Bounded { return &Bounded{most: most, open: map[net.Conn]bool{}} }

// State is an http.Server's ConnState.
func (b *Bounded) State(c net.Conn, state http.ConnState) {
	if surplus := b.note(c, state); surplus != nil {
		_ = surplus.Close() // the server notices, and says that it is closed
	}
}

func (b *Bounded) note(c net.Conn, state http.ConnState) (surplus net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range b.resting {
		if r == c {
			b.resting = append(b.resting[:i], b.resting[i+1:]...)
			break
		}
	}
	switch state {
	case http.StateNew:
		if b.open[c] = true; len(b.open) > b.most {
			if surplus = c; len(b.resting) > 0 {
				surplus, b.resting = b.resting[0], b.resting[1:]
			}
			delete(b.open, surplus)
		}
		if surplus != c {
			b.resting = append(b.resting, c)
		}
	case http.StateIdle:
		if b.open[c] {
			b.resting = append(b.resting, c)
		}
	case http.StateClosed, http.StateHijacked:
		delete(b.open, c)
	}
	return surplus
}

// IsHeader reports whether a header may be stripped: cookies are by their names.
func IsHeader(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t:;,=") && !strings.EqualFold(name, "Host") && !strings.EqualFold(name, "Cookie")
}

// IsCookie reports whether a text is a pattern of names of cookies.
func IsCookie(pattern string) bool {
	_, err := path.Match(pattern, "")
	return pattern != "" && err == nil && !strings.ContainsAny(pattern, " \t;,=")
}
