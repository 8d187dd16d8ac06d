package traces

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// Formats, with the columns that each needs. A file may have further columns, which Load ignores except for the
// optional ones here; JobList has no others.
const (
	// JobList has jobs or pods of a user's own cluster: name, submitted (seconds or a time), gpus. Optional: namespace,
	// duration_seconds, members, cpus, memory_gib, gpu_memory_gib, gpu_models, priority. docs/guides/traces.md says what they
	// mean.
	JobList csvtable.Format = "jobs"
	// OpenbNodeList has nodes: sn, cpu_milli, memory_mib, gpu, model.
	OpenbNodeList csvtable.Format = "openb-nodes"
	// OpenbPodList has pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli. Optional: gpu_spec, qos, creation_time,
	// scheduled_time, deletion_time (seconds).
	OpenbPodList csvtable.Format = "openb-pods"
	// GavelTrace has jobs: job_type, scale_factor, total_steps, arrival_s.
	GavelTrace csvtable.Format = "gavel-jobs"
	// PhillyTrace has jobs: timestamp, duration (seconds), num_gpus. Optional: cluster.
	PhillyTrace csvtable.Format = "philly-jobs"
	// PolluxWorkload has jobs: name, time (seconds), application, num_replicas. Optional: batch_size.
	PolluxWorkload csvtable.Format = "pollux-jobs"
	// MuriTrace has jobs: job_id, num_gpu, submit_time, duration (milliseconds), iterations, model_name. Optional:
	// batch_size, iteration_time (milliseconds), priority.
	MuriTrace csvtable.Format = "muri-jobs"
	// DLRMTrace has pods: instance_sn, app_name, cpu_request (cores), gpu_request, memory_request (GiB), creation_time,
	// scheduled_time, deletion_time (seconds, may be empty). Optional: role.
	DLRMTrace csvtable.Format = "dlrm-pods"
)

// Trace is what a file has: its lists, each in the order of the file.
type Trace struct {
	File   string
	Format csvtable.Format
	Hosts  []Host
	Jobs   []Job
}

// String describes the trace, for people: "pods.csv: openb-pods, 8152 jobs".
func (t *Trace) String() string {
	words := []string{fmt.Sprintf("%s: %s", t.File, t.Format)}
	if n := len(t.Hosts); n > 0 {
		words = append(words, csvtable.Plural(n, "node"))
	}
	if n := len(t.Jobs); n > 0 {
		words = append(words, csvtable.Plural(n, "job"))
	}
	return strings.Join(words, ", ")
}

// schemas lists the formats that Load knows. No header has the columns of two of them by chance.
var schemas = []csvtable.Schema[Trace]{
	{Format: JobList, Needs: jobListNeeds, Only: jobListColumns, Row: listedJob, End: jobListOrigin, Like: likeJobList},
	{Format: OpenbNodeList, Needs: []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, Row: openbNode, End: openbCapacity},
	{Format: OpenbPodList, Needs: []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, Row: openbPod},
	{Format: GavelTrace, Needs: []string{"job_type", "scale_factor", "total_steps", "arrival_s"}, Row: gavelJob},
	{Format: PhillyTrace, Needs: []string{"timestamp", "duration", "num_gpus"}, Row: phillyJob, End: phillyOrigin},
	{Format: PolluxWorkload, Needs: []string{"name", "time", "application", "num_replicas"}, Row: polluxJob},
	{Format: MuriTrace, Needs: []string{"job_id", "num_gpu", "submit_time", "duration", "iterations", "model_name"}, Row: muriJob},
	{
		Format: DLRMTrace, Row: dlrmPod,
		Needs: []string{
			"instance_sn", "app_name", "cpu_request", "gpu_request", "memory_request",
			"creation_time", "scheduled_time", "deletion_time",
		},
	},
}

// Schemas returns the reader of each format, for packages that know more formats than this one.
func Schemas() []csvtable.Schema[Trace] { return slices.Clone(schemas) }

// Load reads the trace at a path in whichever format it has. An error is a *csvtable.Error, or one about opening the
// file.
func Load(path string) (*Trace, error) {
	r, err := csvtable.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return Read(r, path)
}

// Read is Load for a stream. The file is its name in errors.
func Read(r io.Reader, file string) (*Trace, error) {
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

// readAs reads a trace of one format.
func readAs(r io.Reader, file string, format csvtable.Format) (*Trace, error) {
	t, err := csvtable.New(r, file)
	if err != nil {
		return nil, err
	}
	return read(t, csvtable.Find(schemas, format))
}

func read(t *csvtable.Table, s *csvtable.Schema[Trace]) (*Trace, error) {
	all := &Trace{File: t.File(), Format: s.Format}
	if err := s.Read(t, all); err != nil {
		return nil, err
	}
	return all, nil
}
