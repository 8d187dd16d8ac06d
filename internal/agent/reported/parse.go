package reported

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxSeries is the number of series of the metric that parse adds up; a page with more is an error.
const maxSeries = 1000

// maxLine bounds one line of the text, in bytes.
const maxLine = 64 << 10

// seed makes the hashes of labels differ between processes, so a pod cannot choose two that collide.
var seed = maphash.MakeSeed()

// parse reads one metric of a page in Prometheus' text format 0.0.4. parse cuts the page down to the lines of the
// metric first: a mebibyte of other metrics would take a hundred as objects.
func parse(page io.Reader, name string) (now *reading, err error) {
	lines, err := linesOf(page, name)
	if err != nil {
		return nil, err
	}
	// The parser is another project's, and every tenant can feed it: a mistake in it must not end the agent.
	defer func() {
		if p := recover(); p != nil {
			now, err = nil, failed(ResultContent, "the text cannot be parsed: %v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(lines)
	if err != nil {
		return nil, failed(ResultContent, "the text cannot be parsed: %w", err)
	}
	family := families[name]
	if family == nil {
		return nil, failed(ResultMetric, "there is no metric %s", name)
	}
	return read(family)
}

// linesOf returns the lines about the metric: its type and its samples.
func linesOf(page io.Reader, name string) (*bytes.Buffer, error) {
	limited := &io.LimitedReader{R: page, N: maxBody + 1}
	scanner := bufio.NewScanner(limited)
	scanner.Buffer(nil, maxLine)
	kept, samples := &bytes.Buffer{}, 0
	for scanner.Scan() {
		line := bytes.TrimLeft(scanner.Bytes(), " \t")
		sample := begins(line, name, " \t{")
		if !sample && !isType(line, name) {
			continue
		}
		if sample {
			samples++
		}
		if samples > maxSeries {
			return nil, failed(ResultMetric, "metric %s has more than %d series", name, maxSeries)
		}
		kept.Write(line)
		kept.WriteByte('\n')
	}
	switch err := scanner.Err(); {
	case limited.N <= 0:
		return nil, failed(ResultContent, "the answer is larger than %d bytes", maxBody)
	case errors.Is(err, bufio.ErrTooLong):
		return nil, failed(ResultContent, "a line is longer than %d bytes", maxLine)
	case err != nil:
		return nil, failed(ResultUnreachable, "the answer breaks off: %w", err)
	}
	return kept, nil
}

// begins reports whether a line begins with a word and one of the letters that may follow it.
func begins(line []byte, word, followers string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(word))
	return ok && len(rest) > 0 && strings.IndexByte(followers, rest[0]) >= 0
}

// isType reports whether a line gives the type of the metric: "# TYPE name counter".
func isType(line []byte, name string) bool {
	if len(line) == 0 || line[0] != '#' {
		return false
	}
	words := bytes.Fields(line[1:])
	return len(words) >= 2 && string(words[0]) == "TYPE" && string(words[1]) == name
}

// read adds up the series. A metric without a type is a counter where its name ends as that of one: the _count of a
// histogram is one too.
func read(family *dto.MetricFamily) (*reading, error) {
	now := &reading{}
	switch family.GetType() {
	case dto.MetricType_COUNTER:
		now.counter = true
	case dto.MetricType_GAUGE:
	case dto.MetricType_UNTYPED:
		now.counter = strings.HasSuffix(family.GetName(), "_total") || strings.HasSuffix(family.GetName(), "_count")
	default:
		return nil, failed(ResultMetric, "metric %s is a %s, must be a counter or a gauge (or the _count of this one)",
			family.GetName(), strings.ToLower(family.GetType().String()))
	}
	for _, m := range family.Metric {
		v := value(m)
		// A counter may count more than any rate can be.
		if word := absurd(v); word != "" && (word != dropHuge || !now.counter) {
			return nil, dropped(word, v)
		}
		now.sum += v
		if now.counter {
			now.series = append(now.series, point{hash(m.Label), v})
		}
	}
	return now, nil
}

// value of a metric, which has one of the kinds.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// hash names a set of labels, whatever their order.
func hash(labels []*dto.LabelPair) uint64 {
	words := make([]string, 0, len(labels))
	for _, l := range labels {
		words = append(words, fmt.Sprintf("%q=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(words)
	return maphash.String(seed, strings.Join(words, ","))
}
