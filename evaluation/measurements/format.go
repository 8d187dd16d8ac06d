package measurements

import (
	"io"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// Formats of throughputs and step times, with the columns that each needs. A file may have further columns, which Load
// ignores except for the optional ones here. Others are in the files of what they are about.
const (
	// GavelThroughputs has steps per second: gpu, job, scale_factor, tput_consolidated_steps_s. Optional:
	// tput_unconsolidated_steps_s.
	GavelThroughputs csvtable.Format = "gavel-scaling"
	// GavelPairs has steps per second of pairs of jobs, each by itself: gpu, job_a, job_b, iso_a, iso_b. Optional: file;
	// packed_a and packed_b, the two together, which give co-runs; status.
	GavelPairs csvtable.Format = "gavel-pairs"
	// PolluxPlacementTimes has measured steps: placement, local_bsz, step_time (seconds). Optional: sync_time
	// (seconds). A step may have several measurements, here and in PolluxScalingTimes: the mean counts.
	PolluxPlacementTimes csvtable.Format = "pollux-placements"
	// PolluxScalingTimes has measured steps: num_nodes, num_replicas, local_bsz, step_time (seconds). Optional: sync_time
	// (seconds).
	PolluxScalingTimes csvtable.Format = "pollux-scalability"
	// PolluxValidation has epochs, in order: progress, grad_sqr, grad_var.
	PolluxValidation csvtable.Format = "pollux-validation"
)

// File is what a file has: a trace of a cluster, or lists of measurements, each in the order of the file.
type File struct {
	traces.Trace
	Rates  []Rate
	Steps  []Step
	Epochs []Epoch
	// Repeated counts the rows that measure a step of Steps again.
	Repeated int
	// CoRuns, Solos and Networks are the measurements of workloads. A file of GavelPairs has Rates and CoRuns.
	CoRuns   []CoRun
	Solos    []Solo
	Networks []Network
	// Servings and Deployed are of models that serve requests. A file of ParvaProfile has Servings and Solos.
	Servings []Serving
	Deployed []Deployed
}

// String describes the file, for people: "pairs.csv: lucid-pairs, 1388 co-runs".
func (f *File) String() string {
	words := []string{f.Trace.String()}
	for _, list := range []struct {
		n    int
		noun string
	}{
		{len(f.Rates), "throughput"}, {len(f.Steps), "measured step"},
		{f.Repeated, "repeated measurement"}, {len(f.Epochs), "epoch"},
		{len(f.CoRuns), "co-run"}, {len(f.Solos), "solo profile"}, {len(f.Networks), "network"},
		{len(f.Servings), "served variant"}, {len(f.Deployed), "instance"},
	} {
		if list.n > 0 {
			words = append(words, csvtable.Plural(list.n, list.noun))
		}
	}
	return strings.Join(words, ", ")
}

// schemas lists the formats that Load knows. No header has the columns of two of them by chance.
var schemas = slices.Concat(clusterSchemas(), rateSchemas, pairSchemas, servingSchemas)

// clusterSchemas lists the formats of clusters and their jobs.
func clusterSchemas() []csvtable.Schema[File] {
	traced := traces.Schemas()
	all := make([]csvtable.Schema[File], 0, len(traced))
	for _, s := range traced {
		all = append(all, csvtable.Lift(s, func(f *File) *traces.Trace { return &f.Trace }))
	}
	return all
}

// rateSchemas lists the formats of throughputs and step times.
var rateSchemas = []csvtable.Schema[File]{
	{Format: GavelThroughputs, Needs: []string{"gpu", "job", "scale_factor", "tput_consolidated_steps_s"}, Row: gavelRate},
	{Format: GavelPairs, Needs: []string{"gpu", "job_a", "job_b", "iso_a", "iso_b"}, Row: gavelPair},
	{Format: PolluxPlacementTimes, Needs: []string{"placement", "local_bsz", "step_time"}, Row: polluxStep, End: meanSteps},
	{Format: PolluxScalingTimes, Needs: []string{"num_nodes", "num_replicas", "local_bsz", "step_time"}, Row: polluxScaling, End: meanSteps},
	{Format: PolluxValidation, Needs: []string{"progress", "grad_sqr", "grad_var"}, Row: polluxEpoch},
}

// Load reads the file at a path in whichever format it has. An error is a *csvtable.Error, or one about opening the
// file.
func Load(path string) (*File, error) {
	r, err := csvtable.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return Read(r, path)
}

// Read is Load for a stream. The file is its name in errors.
func Read(r io.Reader, file string) (*File, error) {
	t, err := csvtable.New(r, file)
	if err != nil {
		return nil, err
	}
	s, err := csvtable.Detect(t, schemas)
	if err != nil {
		return nil, err
	}
	return read(t, s)
}

func read(t *csvtable.Table, s *csvtable.Schema[File]) (*File, error) {
	all := &File{Trace: traces.Trace{File: t.File(), Format: s.Format}}
	if err := s.Read(t, all); err != nil {
		return nil, err
	}
	return all, nil
}
