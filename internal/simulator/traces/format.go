package traces

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Format names what a trace has.
type Format string

// Formats, with the columns that each needs. Further columns are ignored, but for the optional ones that are named here; JobList
// has no others.
const (
	// JobList has jobs or pods of a user's own cluster: name, submitted (seconds or a time), gpus. Optional: namespace,
	// duration_seconds, members, cpus, memory_gib, gpu_memory_gib, gpu_models, priority. docs/guides/traces.md says what they
	// mean.
	JobList Format = "jobs"
	// OpenbNodeList has nodes: sn, cpu_milli, memory_mib, gpu, model.
	OpenbNodeList Format = "openb-nodes"
	// OpenbPodList has pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli. Optional: gpu_spec, qos, creation_time,
	// scheduled_time, deletion_time (seconds).
	OpenbPodList Format = "openb-pods"
	// GavelTrace has jobs: job_type, scale_factor, total_steps, arrival_s.
	GavelTrace Format = "gavel-jobs"
	// GavelThroughputs has steps per second: gpu, job, scale_factor, tput_consolidated_steps_s. Optional:
	// tput_unconsolidated_steps_s.
	GavelThroughputs Format = "gavel-scaling"
	// GavelPairs has steps per second of pairs of jobs, each by itself: gpu, job_a, job_b, iso_a, iso_b. Optional: file;
	// packed_a and packed_b, the two together, which give co-runs; status.
	GavelPairs Format = "gavel-pairs"
	// PhillyTrace has jobs: timestamp, duration (seconds), num_gpus. Optional: cluster.
	PhillyTrace Format = "philly-jobs"
	// PolluxWorkload has jobs: name, time (seconds), application, num_replicas. Optional: batch_size.
	PolluxWorkload Format = "pollux-jobs"
	// PolluxPlacementTimes has measured steps: placement, local_bsz, step_time (seconds). Optional: sync_time (seconds). A
	// step may be measured several times, here and in PolluxScalingTimes: the mean counts.
	PolluxPlacementTimes Format = "pollux-placements"
	// PolluxScalingTimes has measured steps: num_nodes, num_replicas, local_bsz, step_time (seconds). Optional: sync_time
	// (seconds).
	PolluxScalingTimes Format = "pollux-scalability"
	// PolluxValidation has epochs, in order: progress, grad_sqr, grad_var.
	PolluxValidation Format = "pollux-validation"
	// MuriTrace has jobs: job_id, num_gpu, submit_time, duration (milliseconds), iterations, model_name. Optional:
	// batch_size, iteration_time (milliseconds), priority.
	MuriTrace Format = "muri-jobs"
	// DLRMTrace has pods: instance_sn, app_name, cpu_request (cores), gpu_request, memory_request (GiB), creation_time,
	// scheduled_time, deletion_time (seconds, may be empty). Optional: role.
	DLRMTrace Format = "dlrm-pods"
)

// Trace is what a file has: its lists, each in the order of the file.
type Trace struct {
	File   string
	Format Format
	Hosts  []Host
	Jobs   []Job
	Rates  []Rate
	Steps  []Step
	Epochs []Epoch
	// Repeated counts the rows that measure a step of Steps again.
	Repeated int
	// CoRuns, Solos and Networks are what was measured of workloads. A file of GavelPairs has Rates and CoRuns.
	CoRuns   []CoRun
	Solos    []Solo
	Networks []Network
	// Servings and Deployed are of models that serve requests. A file of ParvaProfile has Servings and Solos.
	Servings []Serving
	Deployed []Deployed
}

// String says what was found, for people: "pods.csv: openb-pods, 8152 jobs".
func (t *Trace) String() string {
	words := []string{fmt.Sprintf("%s: %s", t.File, t.Format)}
	for _, list := range []struct {
		n    int
		noun string
	}{
		{len(t.Hosts), "node"}, {len(t.Jobs), "job"}, {len(t.Rates), "throughput"}, {len(t.Steps), "measured step"},
		{t.Repeated, "repeated measurement"}, {len(t.Epochs), "epoch"},
		{len(t.CoRuns), "co-run"}, {len(t.Solos), "solo profile"}, {len(t.Networks), "network"},
		{len(t.Servings), "served variant"}, {len(t.Deployed), "instance"},
	} {
		if list.n > 0 {
			words = append(words, plural(list.n, list.noun))
		}
	}
	return strings.Join(words, ", ")
}

// schema is how a format is read.
type schema struct {
	format Format
	needs  []string
	// row reads the present row. Values that it read are thrown away when the table then has an error.
	row func(*table, *Trace)
	// end looks at the whole trace; it may be nil.
	end func(*table, *Trace)
	// trailing allows rows to end in a comma that the header does not have.
	trailing bool
	// only lists the columns that a header may have; nil for any.
	only []string
}

// schemas lists the formats that Read knows. No header has the columns of two of them by chance.
var schemas = slices.Concat(clusterSchemas, pairSchemas, servingSchemas)

// clusterSchemas lists the formats of clusters and their jobs.
var clusterSchemas = []schema{
	{format: JobList, needs: jobListNeeds, only: jobListColumns, row: listedJob, end: jobListOrigin},
	{format: OpenbNodeList, needs: []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, row: openbNode, end: openbCapacity},
	{format: OpenbPodList, needs: []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, row: openbPod},
	{format: GavelTrace, needs: []string{"job_type", "scale_factor", "total_steps", "arrival_s"}, row: gavelJob},
	{format: GavelThroughputs, needs: []string{"gpu", "job", "scale_factor", "tput_consolidated_steps_s"}, row: gavelRate},
	{format: GavelPairs, needs: []string{"gpu", "job_a", "job_b", "iso_a", "iso_b"}, row: gavelPair},
	{format: PhillyTrace, needs: []string{"timestamp", "duration", "num_gpus"}, row: phillyJob, end: phillyOrigin},
	{format: PolluxWorkload, needs: []string{"name", "time", "application", "num_replicas"}, row: polluxJob},
	{format: PolluxPlacementTimes, needs: []string{"placement", "local_bsz", "step_time"}, row: polluxStep, end: meanSteps},
	{format: PolluxScalingTimes, needs: []string{"num_nodes", "num_replicas", "local_bsz", "step_time"}, row: polluxScaling, end: meanSteps},
	{format: PolluxValidation, needs: []string{"progress", "grad_sqr", "grad_var"}, row: polluxEpoch},
	{format: MuriTrace, needs: []string{"job_id", "num_gpu", "submit_time", "duration", "iterations", "model_name"}, row: muriJob},
	{
		format: DLRMTrace, row: dlrmPod,
		needs: []string{
			"instance_sn", "app_name", "cpu_request", "gpu_request", "memory_request",
			"creation_time", "scheduled_time", "deletion_time",
		},
	},
}

// detect returns the format whose columns a header has. It is an *Error without a file if there is none, or if there are
// two.
func detect(header []string) (*schema, *Error) {
	var found []*schema
	for i := range schemas {
		if !slices.ContainsFunc(schemas[i].needs, func(c string) bool { return !slices.Contains(header, c) }) {
			found = append(found, &schemas[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, &Error{
			Line: 1, Value: "the columns " + clip(strings.Join(header, ", ")), Legal: "those of a known trace: " + known(),
		}
	case 1:
		return found[0], nil
	}
	return nil, &Error{
		Line: 1, Value: fmt.Sprintf("the columns of %s and of %s", found[0].format, found[1].format),
		Legal: "those of one format",
	}
}

// known lists the formats with their columns.
func known() string {
	words := make([]string, 0, len(schemas))
	for i := range schemas {
		words = append(words, fmt.Sprintf("%s (%s)", schemas[i].format, strings.Join(schemas[i].needs, ", ")))
	}
	return strings.Join(words, "; ")
}

// Load reads the trace at a path in whichever format it has. An error is an *Error, or says that the file cannot be
// opened.
func Load(path string) (*Trace, error) {
	r, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return Read(r, path)
}

// Read is Load for a stream. The file is its name in errors.
func Read(r io.Reader, file string) (*Trace, error) {
	t, err := newTable(r, file)
	if err != nil {
		return nil, err
	}
	s, unknown := detect(t.header)
	if unknown != nil && likeJobList(t.header) {
		return readTable(t, JobList)
	}
	if unknown != nil {
		unknown.File, unknown.Line = file, t.head
		return nil, unknown
	}
	return readTable(t, s.format)
}

// readAs reads a trace of one format.
func readAs(r io.Reader, file string, format Format) (*Trace, error) {
	t, err := newTable(r, file)
	if err != nil {
		return nil, err
	}
	return readTable(t, format)
}

// readTable reads a table as one format.
func readTable(t *table, format Format) (*Trace, error) {
	for i := range schemas {
		if s := &schemas[i]; s.format == format {
			if err := t.only(s.only); err != nil {
				return nil, err
			}
			if err := t.needs(s.needs); err != nil {
				return nil, err
			}
			return t.trace(s)
		}
	}
	return nil, fmt.Errorf("read %s: unknown format %q", t.file, format)
}

// trace reads all rows.
func (t *table) trace(s *schema) (*Trace, error) {
	all := &Trace{File: t.file, Format: s.format}
	t.trailing = s.trailing
	for t.next() {
		s.row(t, all)
	}
	if t.err == nil && s.end != nil {
		s.end(t, all)
	}
	if t.err != nil {
		return nil, t.err
	}
	return all, nil
}
