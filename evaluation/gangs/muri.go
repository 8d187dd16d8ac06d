package gangs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// MaxJobs bounds the jobs of a trace of Muri that are played.
const MaxJobs = 10_000

// StandIn is the application whose measured steps stand for those of a model that was not measured, and how many samples
// each of its workers computes in a step.
type StandIn struct {
	App     string
	Samples int64
}

// MuriModels says which application stands for which model of Muri's traces, as ParseModels reads it. The reasons are in
// docs/experiments/elastic.md. The samples of a worker are the median of Pollux's workloads 1 to 4.
const MuriModels = "a2c=imagenet:133,bert=bert:32,dqn=imagenet:133,gpt2=bert:32,resnet18=cifar10:341,shufflenet_v2_x1_0=imagenet:133,vgg16=yolov3:16,vgg19=yolov3:16"

// ParseModels reads "vgg16=yolov3:16,bert=bert:32": each model with the application that stands for it, and the samples of
// each of its workers in a step.
func ParseModels(list string) (map[string]StandIn, error) {
	models := map[string]StandIn{}
	for _, part := range strings.Split(list, ",") {
		model, as, _ := strings.Cut(part, "=")
		app, text, _ := strings.Cut(as, ":")
		samples, err := strconv.ParseInt(text, 10, 64)
		switch {
		case model == "" || app == "" || err != nil || samples < 1 || samples > traces.MaxBatch:
			return nil, fmt.Errorf("%q is no model with an application and the samples of a worker from 1 to %d, as vgg16=yolov3:16", part, traces.MaxBatch)
		case models[model].App != "":
			return nil, fmt.Errorf("%s appears twice", model)
		}
		models[model] = StandIn{app, samples}
	}
	return models, nil
}

// muriJobs returns the jobs of a trace of Muri that can be played, in the order of their arrival. A job trains the
// application that stands for its model until it has run for the time in the trace, with the GPUs that it asks for on as
// few nodes as possible. Jobs that ask for more GPUs than there are, and those whose application was not measured on the
// nodes, are left out.
func (e *Elastic) muriJobs(apps map[string]*gangApp, w *measurements.File) ([]gangJob, error) {
	all := make([]gangJob, 0, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		as, known := e.Models[j.App]
		if !known {
			return nil, fmt.Errorf("%s line %d column model_name: found %q, want a model for which an application stands: %s",
				w.File, j.Line, j.App, strings.Join(slices.Sorted(maps.Keys(e.Models)), ", "))
		}
		app, measured := apps[as.App]
		if !measured || j.Workers > e.Nodes*e.GPUs {
			continue
		}
		batch := min(max(as.Samples*int64(j.Workers), app.batches[0]), app.batches[len(app.batches)-1])
		if err := app.legal(batch, j.Workers); err != nil {
			return nil, fmt.Errorf("%s line %d column num_gpu: %w", w.File, j.Line, err)
		}
		job := e.job(app, j.Arrive, j.Workers, batch)
		job.passes = j.Duration.Seconds() / job.expected
		job.expected = j.Duration.Seconds()
		all = append(all, job)
	}
	if len(all) == 0 {
		return nil, e.nothingMeasured(w)
	}
	return inArrival(all), nil
}

// inARow returns so many jobs that arrived one after the other, from a random one on; all where there are fewer.
func inARow(jobs []gangJob, count int, seed int64) []gangJob {
	count = min(count, len(jobs))
	from := rand.New(rand.NewPCG(uint64(seed), 3)).IntN(len(jobs) - count + 1)
	return slices.Clone(jobs[from : from+count])
}

// stretch changes the times between the arrivals of jobs by one factor, so that they ask for as many times the GPU time of
// the cluster from the first to the last arrival. The first arrives at once. If all arrive at once, nothing changes.
func stretch(jobs []gangJob, load float64, gpus int) []gangJob {
	first, by := jobs[0].arrive, 1.0
	if now := asked(jobs, gpus); now > 0 {
		by = now / load
	}
	for i := range jobs {
		jobs[i].arrive = (jobs[i].arrive - first) * by
	}
	return inArrival(jobs)
}
