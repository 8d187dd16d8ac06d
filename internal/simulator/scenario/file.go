package scenario

import (
	"encoding/json"
	"strings"
)

// The types of this file are the YAML, before any check.

type file struct {
	Name        scalar          `json:"name"`
	Description scalar          `json:"description"`
	Cluster     clusterFile     `json:"cluster"`
	Workload    workloadFile    `json:"workload"`
	Policies    []scalar        `json:"policies"`
	Queue       scalar          `json:"queue"`
	Seeds       scalar          `json:"seeds"`
	Typical     *typicalFile    `json:"typical"`
	Gangs       *gangsFile      `json:"gangs"`
	Preemption  *preemptionFile `json:"preemption"`
	Elastic     *elasticFile    `json:"elastic"`
	Day         scalar          `json:"day"`
	Assertions  []assertionFile `json:"assertions"`
}

type clusterFile struct {
	Groups []groupFile `json:"groups"`
	Trace  *nodesFile  `json:"trace"`
}

type groupFile struct {
	Name         scalar `json:"name"`
	Count        scalar `json:"count"`
	CPU          scalar `json:"cpu"`
	Memory       scalar `json:"memory"`
	GPUs         scalar `json:"gpus"`
	Model        scalar `json:"model"`
	Slots        scalar `json:"slots"`
	DeviceMemory scalar `json:"device_memory"`
	NVLink       scalar `json:"nvlink"`

	Labels  map[string]scalar `json:"labels"`
	Domains []domainFile      `json:"domains"`
}

type domainFile struct {
	Label scalar `json:"label"`
	Nodes scalar `json:"nodes"`
}

type nodesFile struct {
	Path scalar `json:"path"`
}

type workloadFile struct {
	Jobs       []jobFile       `json:"jobs"`
	Generators []generatorFile `json:"generators"`
	Trace      *traceFile      `json:"trace"`
	Fleets     []fleetFile     `json:"fleets"`
	Notebooks  []notebookFile  `json:"notebooks"`
}

// fleetFile is an inference fleet.
type fleetFile struct {
	Name        scalar           `json:"name"`
	Arrive      scalar           `json:"arrive"`
	After       scalar           `json:"after"`
	Priority    scalar           `json:"priority"`
	CPU         scalar           `json:"cpu"`
	Memory      scalar           `json:"memory"`
	Promise     promiseFile      `json:"promise"`
	MinReplicas scalar           `json:"min_replicas"`
	MaxReplicas scalar           `json:"max_replicas"`
	LoadTime    scalar           `json:"load_time"`
	Variation   scalar           `json:"variation"`
	Shares      []fleetShareFile `json:"shares"`
	Rates       requestRatesFile `json:"rates"`
}

type promiseFile struct {
	Latency  scalar `json:"latency"`
	Quantile scalar `json:"quantile"`
}

type fleetShareFile struct {
	Slots scalar `json:"slots"`
	Rate  scalar `json:"rate"`
	Time  scalar `json:"time"`
}

// requestRatesFile is how many requests a second arrive.
type requestRatesFile struct {
	Every scalar    `json:"every"`
	List  []scalar  `json:"list"`
	Wave  *waveFile `json:"wave"`
	CSV   scalar    `json:"csv"`
}

type waveFile struct {
	Low   scalar `json:"low"`
	High  scalar `json:"high"`
	Peak  scalar `json:"peak"`
	Lasts scalar `json:"lasts"`
}

// notebookFile is notebooks, which arrive as the jobs of a generator do.
type notebookFile struct {
	After scalar `json:"after"`
	Burst scalar `json:"burst"`
	Duty  scalar `json:"duty"`
	generatorFile
}

// askFile is the request of a pod.
type askFile struct {
	Slots     scalar   `json:"slots"`
	GPUMemory scalar   `json:"gpu_memory"`
	CPU       scalar   `json:"cpu"`
	Memory    scalar   `json:"memory"`
	Models    []scalar `json:"models"`
}

// workFile is the request of a job: a pod, or a gang of pods.
type workFile struct {
	askFile
	Gang *gangFile `json:"gang"`
}

type gangFile struct {
	Members   []memberFile `json:"members"`
	MinCount  scalar       `json:"min_count"`
	Required  []scalar     `json:"required"`
	Preferred []scalar     `json:"preferred"`
	Elastic   *resizeFile  `json:"elastic"`
}

// resizeFile is how the size of a gang changes.
type resizeFile struct {
	Workers         scalar     `json:"workers"`
	Rates           []rateFile `json:"rates"`
	ResizeTime      scalar     `json:"resize_time"`
	ReportsProgress scalar     `json:"reports_progress"`
}

type rateFile struct {
	Workers scalar `json:"workers"`
	Hosts   scalar `json:"hosts"`
	Rate    scalar `json:"rate"`
}

// elasticFile is the configuration of the sizes of elastic gangs.
type elasticFile struct {
	Policy      scalar `json:"policy"`
	Interval    scalar `json:"interval"`
	Horizon     scalar `json:"horizon"`
	MaxMoves    scalar `json:"max_moves"`
	Notice      scalar `json:"notice"`
	AdmitWithin scalar `json:"admit_within"`
}

type memberFile struct {
	Role  scalar `json:"role"`
	Count scalar `json:"count"`
	askFile
}

// gangsFile is the configuration of gang placement.
type gangsFile struct {
	Drain        scalar   `json:"drain"`
	DrainAfter   scalar   `json:"drain_after"`
	DrainTimeout scalar   `json:"drain_timeout"`
	MaxDomains   scalar   `json:"max_domains"`
	Preferred    []scalar `json:"preferred"`
}

// preemptionFile is the configuration of evictions for pods and gangs without room.
type preemptionFile struct {
	Policy      scalar `json:"policy"`
	Grace       scalar `json:"grace"`
	KeepBudgets scalar `json:"keep_budgets"`
}

// standingFile is what a job is worth to others, and to itself, when it comes to evictions.
type standingFile struct {
	Priority       scalar `json:"priority"`
	Checkpoint     scalar `json:"checkpoint"`
	MaxUnavailable scalar `json:"max_unavailable"`
}

type jobFile struct {
	Name        scalar `json:"name"`
	Arrive      scalar `json:"arrive"`
	After       scalar `json:"after"`
	Duration    scalar `json:"duration"`
	DeclaresEnd scalar `json:"declares_end"`
	standingFile
	workFile
}

type generatorFile struct {
	Name     scalar        `json:"name"`
	Arrivals arrivalsFile  `json:"arrivals"`
	Shapes   []shapeFile   `json:"shapes"`
	Duration *durationFile `json:"duration"`

	DeclaresEnd scalar `json:"declares_end"`
	standingFile
}

type arrivalsFile struct {
	Batch   *batchFile   `json:"batch"`
	Every   *everyFile   `json:"every"`
	Poisson *poissonFile `json:"poisson"`
}

type batchFile struct {
	At    scalar `json:"at"`
	Count scalar `json:"count"`
}

type everyFile struct {
	From     scalar `json:"from"`
	Interval scalar `json:"interval"`
	Count    scalar `json:"count"`
}

type poissonFile struct {
	From    scalar `json:"from"`
	PerHour scalar `json:"per_hour"`
	Count   scalar `json:"count"`
}

type shapeFile struct {
	Weight scalar `json:"weight"`
	workFile
}

type durationFile struct {
	AtMost      scalar           `json:"at_most"`
	Fixed       scalar           `json:"fixed"`
	Exponential *exponentialFile `json:"exponential"`
	Lognormal   *lognormalFile   `json:"lognormal"`
}

type exponentialFile struct {
	Mean scalar `json:"mean"`
}

type lognormalFile struct {
	Median scalar `json:"median"`
	Sigma  scalar `json:"sigma"`
}

type traceFile struct {
	Format  scalar `json:"format"`
	Path    scalar `json:"path"`
	Inflate scalar `json:"inflate"`
}

type typicalFile struct {
	From     scalar        `json:"from"`
	Requests []typicalKind `json:"requests"`
}

type typicalKind struct {
	Weight    scalar   `json:"weight"`
	Slots     scalar   `json:"slots"`
	GPUMemory scalar   `json:"gpu_memory"`
	CPU       scalar   `json:"cpu"`
	Memory    scalar   `json:"memory"`
	Models    []scalar `json:"models"`
}

type assertionFile struct {
	Metric   scalar `json:"metric"`
	Level    scalar `json:"level"`
	Priority scalar `json:"priority"`
	Job      scalar `json:"job"`
	Policy   scalar `json:"policy"`
	From     scalar `json:"from"`
	To       scalar `json:"to"`
	Min      scalar `json:"min"`
	Max      scalar `json:"max"`
}

// scalar is the text of a string, a number or a bool; "" where nothing stands. Anything else stays JSON, for the error
// of the reader.
type scalar string

// UnmarshalJSON never fails, so that errors come from code that knows the field.
func (s *scalar) UnmarshalJSON(b []byte) error {
	text := string(b)
	if text == "null" {
		return nil
	}
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	*s = scalar(text)
	return nil
}
