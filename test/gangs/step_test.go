package gangs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// step is one line of a history: a verb, mostly a name, and options.
type step struct {
	verb, name string
	options    map[string]string
	// rush: the next step follows before the world has settled.
	rush bool
}

// String returns the line: "gang g1 members=4 min=3 slots=5 &".
func (s step) String() string {
	words := []string{s.verb}
	if s.name != "" {
		words = append(words, s.name)
	}
	for _, key := range slices.Sorted(maps.Keys(s.options)) {
		words = append(words, key+"="+s.options[key])
	}
	if s.rush {
		words = append(words, "&")
	}
	return strings.Join(words, " ")
}

// parse reads the lines of a history. Empty lines and those that begin with # say nothing.
func parse(text string) ([]step, error) {
	var history []step
	for number, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		s := step{verb: words[0], options: map[string]string{}}
		if _, ok := verbs[s.verb]; !ok {
			return nil, fmt.Errorf("read line %d: unknown verb %q", number+1, s.verb)
		}
		for i, word := range words[1:] {
			key, value, option := strings.Cut(word, "=")
			switch {
			case option:
				s.options[key] = value
			case word == "&":
				s.rush = true
			case i == 0:
				s.name = word
			default:
				return nil, fmt.Errorf("read line %d: %q is no option", number+1, word)
			}
		}
		history = append(history, s)
	}
	return history, nil
}

// script returns the lines of a history.
func script(history []step) string {
	var b strings.Builder
	for _, s := range history {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func (s step) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(s.options[key]); err == nil {
		return n
	}
	return otherwise
}

func (s step) span(key string) time.Duration {
	d, err := time.ParseDuration(s.options[key])
	if err != nil {
		return 0
	}
	return d
}

func (s step) list(key string) []string {
	if s.options[key] == "" {
		return nil
	}
	return strings.Split(s.options[key], ",")
}
