package results

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Rightsize is how many GPUs serve sets of models under their SLOs: a result per set.
type Rightsize struct {
	Results []SizedSet `json:"results"`
}

// SizedSet is one set of models.
type SizedSet struct {
	Set int `json:"set"`
	// GPUs of the deployment, with so many compute slices in use.
	GPUs   int `json:"gpus"`
	Slices int `json:"slices"`
	// PublishedGPUs and PublishedSlices are those of the published deployment; nil for none.
	PublishedGPUs   *int `json:"published_gpus"`
	PublishedSlices *int `json:"published_slices"`
	// LowerBound is the least number of GPUs of any choice of instances. Optimal says that no choice has fewer GPUs.
	LowerBound int  `json:"lower_bound"`
	Optimal    bool `json:"optimal"`
	// Models by name.
	Models []SizedModel `json:"models"`
	// Violations of the demands, by the result or by the published deployment.
	Violations []Violation `json:"violations"`
	// Notes about the published deployment that are no violations.
	Notes []string `json:"notes"`
}

// SizedModel is what serves one model. Latencies and throughputs are those of the profile.
type SizedModel struct {
	Model string `json:"model"`
	// Rate is the demand, Throughput the sum of all instances, in requests per second.
	Rate       float64 `json:"rate"`
	Throughput float64 `json:"throughput"`
	// SLO is for a request; of it a batch may take the limit. Latency is that of the slowest instance.
	SLO     float64 `json:"slo_ms"`
	Limit   float64 `json:"limit_ms"`
	Latency float64 `json:"latency_ms"`
	// Instances by GPU and start.
	Instances []SizedInstance `json:"instances"`
}

// SizedInstance is a MIG instance.
type SizedInstance struct {
	// GPU counts from 0, Start is the first memory slice.
	GPU   int `json:"gpu"`
	Start int `json:"start"`
	// Slices are compute slices.
	Slices    int `json:"slices"`
	Batch     int `json:"batch"`
	Processes int `json:"processes"`
	// Throughput of all processes, in requests per second.
	Throughput float64 `json:"throughput"`
	Latency    float64 `json:"latency_ms"`
}

// Violation is a demand that the deployment does not meet.
type Violation struct {
	// Deployment is "tandem" or "published".
	Deployment string `json:"deployment"`
	// Model that it is about, "" for a GPU or all of the set. GPU is "node/number", "" where it is about a model.
	Model string `json:"model"`
	GPU   string `json:"gpu"`
	// Reason says it in words.
	Reason string `json:"reason"`
}

// String says it in a line: "published, vgg19: …".
func (v Violation) String() string {
	words := v.Deployment
	if v.Model != "" {
		words += ", " + v.Model
	}
	if v.GPU != "" {
		words += ", GPU " + v.GPU
	}
	return words + ": " + v.Reason
}

// Violated returns a line for each violation.
func (r *Rightsize) Violated() []string {
	var all []string
	for i := range r.Results {
		for _, v := range r.Results[i].Violations {
			all = append(all, fmt.Sprintf("set %d, %v", r.Results[i].Set, v))
		}
	}
	return all
}

// Table writes a row per set, then one per model, and then notes and violations.
func (r *Rightsize) Table(w io.Writer) error {
	sets := report.Table{Columns: []report.Column{
		{Head: "set"}, {Head: "models"}, {Head: "GPUs"}, {Head: "published GPUs"}, {Head: "lower bound"},
		{Head: "optimal", Text: true}, {Head: "slices"}, {Head: "published slices"}, {Head: "violations"},
	}}
	models := report.Table{Columns: []report.Column{
		{Head: "set"}, {Head: "model", Text: true}, {Head: "rate"}, {Head: "throughput"}, {Head: "SLO ms"}, {Head: "limit ms"},
		{Head: "latency ms"}, {Head: "instances", Text: true},
	}}
	lines := ""
	for i := range r.Results {
		s := &r.Results[i]
		sets.Rows = append(sets.Rows, s.cells())
		for m := range s.Models {
			models.Rows = append(models.Rows, append([]string{strconv.Itoa(s.Set)}, s.Models[m].cells()...))
		}
		for _, n := range s.Notes {
			lines += fmt.Sprintf("note: set %d, %s\n", s.Set, n)
		}
	}
	for _, violated := range r.Violated() {
		lines += fmt.Sprintf("violated: %s\n", violated)
	}
	var b strings.Builder
	if err := sets.Write(&b); err != nil {
		return err
	}
	b.WriteByte('\n')
	if err := models.Write(&b); err != nil {
		return err
	}
	if lines != "" {
		b.WriteString("\n" + lines)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cells are those of the set in the table.
func (s *SizedSet) cells() []string {
	optimal := "unknown"
	if s.Optimal {
		optimal = "yes"
	}
	return []string{
		strconv.Itoa(s.Set), strconv.Itoa(len(s.Models)), strconv.Itoa(s.GPUs), orDash(s.PublishedGPUs), strconv.Itoa(s.LowerBound),
		optimal, strconv.Itoa(s.Slices), orDash(s.PublishedSlices), strconv.Itoa(len(s.Violations)),
	}
}

func orDash(n *int) string {
	if n == nil {
		return "–"
	}
	return strconv.Itoa(*n)
}

// cells are those of the model in the table.
func (m *SizedModel) cells() []string {
	short := func(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
	return []string{m.Model, short(m.Rate), short(m.Throughput), short(m.SLO), short(m.Limit), short(m.Latency), m.kinds()}
}

// kinds says which instances there are, the largest first: "2 × 3g (batch 16, 2 processes)".
func (m *SizedModel) kinds() string {
	instances := slices.Clone(m.Instances)
	slices.SortStableFunc(instances, func(a, b SizedInstance) int { return cmp.Compare(b.Slices, a.Slices) })
	var words []string
	count := map[string]int{}
	for _, one := range instances {
		word := fmt.Sprintf("%dg (batch %d, %d processes)", one.Slices, one.Batch, one.Processes)
		if one.Processes == 1 {
			word = strings.Replace(word, "processes", "process", 1)
		}
		if count[word]++; count[word] == 1 {
			words = append(words, word)
		}
	}
	for i, word := range words {
		words[i] = fmt.Sprintf("%d × %s", count[word], word)
	}
	return strings.Join(words, ", ")
}
