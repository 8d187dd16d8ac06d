package main

import (
	"bufio"
	"encoding/json"
	"io"
	"regexp"
	"strings"
)

// event is a line of `go test -json`; `go doc test2json` and `go help buildjson` describe its fields.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string
	FailedBuild string
}

// plain is the action of a line that is not JSON, which go test prints where it fails itself.
const plain = "plain"

// read returns the events of a stream, until its end.
func read(from io.Reader) <-chan event {
	events := make(chan event)
	go func() {
		defer close(events)
		lines := bufio.NewReader(from)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				events <- decode(line)
			}
			if err != nil {
				return
			}
		}
	}()
	return events
}

func decode(line string) event {
	e := event{}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		return event{Action: plain, Output: line}
	}
	return e
}

// klogLine is a line of klog: level and date, time, thread, and the place in the source; or one that its ktesting passed to a test.
var klogLine = regexp.MustCompile(`^( +[^ :]+:\d+: )?[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+( [^ ]+:\d+)?\] `)

// framing begins the lines that name the test of the next ones.
var framing = []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "}

func isFraming(line string) bool {
	for _, f := range framing {
		if strings.HasPrefix(line, f) {
			return true
		}
	}
	return false
}
