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
)

var schemas = []csvtable.Schema[Load]{
	{Format: TwitterMinutes, Needs: []string{"minute", "tweets"}, Row: twitterMinute},
	{Format: AzureRequests, Needs: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, Row: azureRequest, End: wholeMinutes},
}

// maxCount bounds the requests of a minute.
const maxCount = 1_000_000_000

// ReadLoad reads a load by minute, in requests a second. An error is a *csvtable.Error, or one about opening the file.
func ReadLoad(path string) (*Load, error) {
	r, err := csvtable.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t, err := csvtable.New(r, path)
	if err != nil {
		return nil, err
	}
	s, err := csvtable.Detect(t, schemas)
	if err != nil {
		return nil, err
	}
	l := &Load{Span: time.Minute}
	if err := s.Read(t, l); err != nil {
		return nil, err
	}
	return l, nil
}

func twitterMinute(t *csvtable.Table, l *Load) {
	minute, count := t.Whole("minute", 0, csvtable.MaxRows), t.Whole("tweets", 0, maxCount)
	if int(minute) != len(l.Rates) {
		t.Fail("minute", fmt.Sprintf("%d: minutes follow each other from 0", len(l.Rates)))
		return
	}
	rate := float64(count) / 60
	if count == 0 && len(l.Rates) > 0 {
		rate = l.Rates[len(l.Rates)-1]
	}
	l.Rates = append(l.Rates, rate)
}

// azureTime is how the traces of Azure write times.
const azureTime = "2006-01-02 15:04:05.9999999"

func azureRequest(t *csvtable.Table, l *Load) {
	at, err := time.Parse(azureTime, t.Text("TIMESTAMP"))
	if err != nil {
		t.Fail("TIMESTAMP", "a time as 2023-11-16 18:15:46.6805900")
		return
	}
	if l.first.IsZero() {
		l.first = at
	}
	minute := int(at.Sub(l.first) / time.Minute)
	if minute < len(l.Rates)-1 || minute > len(l.Rates)+maxSilence {
		t.Fail("TIMESTAMP", fmt.Sprintf("a time after the last one, and at most %d minutes later", maxSilence))
		return
	}
	for len(l.Rates) <= minute {
		l.Rates = append(l.Rates, 0)
	}
	l.Rates[minute] += 1.0 / 60
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
