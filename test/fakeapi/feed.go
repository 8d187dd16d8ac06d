package fakeapi

import (
	"runtime"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// feed is a watch that takes events as they come, however slowly its watcher does.
type feed struct {
	source watch.Interface
	events chan watch.Event
	stop   func()
	ended  chan struct{}
}

// follow returns a feed of the events of a watch. Its watcher owns the objects.
func (t *tracker) follow(source watch.Interface) *feed {
	f := &feed{source: source, events: make(chan watch.Event), ended: make(chan struct{})}
	f.stop = sync.OnceFunc(func() {
		t.mu.Lock()
		delete(t.feeds, f)
		t.mu.Unlock()
		close(f.ended)
		source.Stop()
	})
	t.mu.Lock()
	t.feeds[f] = true
	t.mu.Unlock()
	go f.run()
	return f
}

// Stop ends the feed.
func (f *feed) Stop() { f.stop() }

// ResultChan returns the events; the channel closes at the end of the feed.
func (f *feed) ResultChan() <-chan watch.Event { return f.events }

func (f *feed) run() {
	defer close(f.events)
	var waiting []watch.Event
	for {
		var next watch.Event
		var to chan<- watch.Event
		if len(waiting) > 0 {
			next, to = waiting[0], f.events
		}
		select {
		case <-f.ended:
			return
		case e, ok := <-f.source.ResultChan():
			if !ok {
				return
			}
			e.Object = e.Object.DeepCopyObject()
			waiting = append(waiting, e)
		case to <- next:
			waiting = waiting[1:]
		}
	}
}

// settle waits until all feeds have taken their events.
func (t *tracker) settle() {
	t.mu.Lock()
	feeds := make([]*feed, 0, len(t.feeds))
	for f := range t.feeds {
		feeds = append(feeds, f)
	}
	t.mu.Unlock()
	for _, f := range feeds {
		for len(f.source.ResultChan()) > 0 && !f.over() {
			runtime.Gosched()
		}
	}
}

func (f *feed) over() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}
