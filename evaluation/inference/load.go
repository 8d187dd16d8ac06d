package inference

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// Formats of loads, with the columns that each needs.
const (
	// TwitterMinutes has tweets by minute: minute, tweets. Minutes follow each other; of a minute without a tweet the file is known to have a
	// gap, and such minutes count as the last one that has some.
	TwitterMinutes csvtable.Format = "twitter-minutes"
	// AzureRequests has a request in each row, in order of time: TIMESTAMP, ContextTokens, GeneratedTokens.
	AzureRequests csvtable.Format = "azure-requests"
	// AlibabaRates has requests a second of Alibaba's image generation, in order of time: timestamp_anon (seconds), value, request_type, and
	// maybe the container. A row counts for the 57 s that begin at its time, and the rows of all containers are added. API Requests do not count:
	// they are what comes in, and Generative Requests are what GPUs serve.
	AlibabaRates csvtable.Format = "alibaba-rates"
)

var schemas = []csvtable.Schema[Load]{
	{Format: TwitterMinutes, Needs: []string{"minute", "tweets"}, Row: twitterMinute},
	{Format: AzureRequests, Needs: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, Row: azureRequest, End: wholeMinutes},
	{Format: AlibabaRates, Needs: []string{"timestamp_anon", "value", "request_type"}, Row: alibabaRate, End: wholeMinutes},
}

// maxCount bounds the requests of a minute.
const maxCount = 1_000_000_000

// ReadLoad reads a load by minute, in requests a second. An error is a *csvtable.Error, or one about opening the file.
func ReadLoad(path string) (*Load, error) {
	l, err := read(path, schemas)
	if err != nil {
		return nil, err
	}
	l.Span = time.Minute
	return &l, nil
}

// read reads a file in whichever of some formats it has.
func read[T any](path string, schemas []csvtable.Schema[T]) (all T, err error) {
	r, err := csvtable.Open(path)
	if err != nil {
		return all, err
	}
	defer r.Close()
	t, err := csvtable.New(r, path)
	if err != nil {
		return all, err
	}
	s, err := csvtable.Detect(t, schemas)
	if err != nil {
		return all, err
	}
	return all, s.Read(t, &all)
}

func twitterMinute(t *csvtable.Table, l *Load) {
	minute, count := t.Whole("minute", 0, csvtable.MaxRows), t.Whole("tweets", 0, maxCount)
	if int(minute) != len(l.Rates) {
		t.Fail("minute", fmt.Sprintf("%d: minutes follow each other from 0", len(l.Rates)))
		return
	}
	rate, n := float64(count)/60, len(l.Rates)
	if count == 0 && n > 0 {
		if n > 1 && l.Rates[n-1] < cutShort*l.Rates[n-2] {
			l.Rates[n-1] = l.Rates[n-2]
		}
		rate = l.Rates[n-1]
	}
	l.Rates = append(l.Rates, rate)
}

// cutShort is the part of the minute before that a minute before a gap must have to be a whole one. The counts of each day end in a minute
// that was cut short, and then a gap: both are taken to be like the last whole minute.
const cutShort = .5

// azureTime is how the traces of Azure write times.
const azureTime = "2006-01-02 15:04:05.9999999"

func azureRequest(t *csvtable.Table, l *Load) {
	at, err := time.Parse(azureTime, t.Text("TIMESTAMP"))
	if err != nil {
		t.Fail("TIMESTAMP", "a time as 2023-11-16 18:15:46.6805900")
		return
	}
	l.arrive(t, "TIMESTAMP", at, 0, 1)
}

// alibabaSample is the time between two rates of a container in the trace of Alibaba.
const alibabaSample = 57 * time.Second

// mostSeconds bounds times since 1970, to some 270 years.
const mostSeconds = 1 << 33

func alibabaRate(t *csvtable.Table, l *Load) {
	at := time.Unix(0, int64(t.Decimal("timestamp_anon", mostSeconds, "seconds")*float64(time.Second)))
	requests := t.Decimal("value", maxCount, "requests per second") * alibabaSample.Seconds()
	switch t.Text("request_type") {
	case "Generative Requests":
	case "API Requests":
		requests = 0
	default:
		t.Fail("request_type", "Generative Requests or API Requests")
	}
	l.arrive(t, "timestamp_anon", at, alibabaSample, requests)
}

// arrive adds requests that arrive evenly from a time on. The column has the time, which is not before the last one, and not much later.
func (l *Load) arrive(t *csvtable.Table, column string, at time.Time, lasts time.Duration, requests float64) {
	if l.first.IsZero() {
		l.first, l.last = at, at
	}
	if at.Before(l.last) || at.Sub(l.last) > maxSilence*time.Minute {
		t.Fail(column, fmt.Sprintf("a time after the last one, and at most %d minutes later", maxSilence))
		return
	}
	l.last = at
	l.add(at.Sub(l.first), lasts, requests)
}

// add adds requests that arrive evenly for a time, from one on. All that arrive at one time are in its minute.
func (l *Load) add(from, lasts time.Duration, requests float64) {
	for until := from + lasts; ; {
		minute := int(from / time.Minute)
		for len(l.Rates) <= minute {
			l.Rates = append(l.Rates, 0)
		}
		end, part := min(until, time.Duration(minute+1)*time.Minute), 1.0
		if lasts > 0 {
			part = float64(end-from) / float64(lasts)
		}
		l.Rates[minute] += part * requests / time.Minute.Seconds()
		if end == until {
			return
		}
		from = end
	}
}

// maxSilence bounds the minutes without a request.
const maxSilence = 24 * 60

// wholeMinutes drops the last minute, which is not complete.
func wholeMinutes(t *csvtable.Table, l *Load) {
	if len(l.Rates) < 2 {
		t.Refuse("TIMESTAMP", fmt.Sprint(len(l.Rates), " minute"), "requests of two minutes at least")
		return
	}
	l.Rates = l.Rates[:len(l.Rates)-1]
}

// Part returns some minutes of a load, times a factor.
func (l *Load) Part(from, minutes int, factor float64) Load {
	from = min(from, len(l.Rates))
	out := Load{Span: l.Span}
	for _, r := range l.Rates[from:min(len(l.Rates), from+minutes)] {
		out.Rates = append(out.Rates, r*factor)
	}
	return out
}
