package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// coRun is what one member of a co-run did.
type coRun struct {
	part, sharing string
	// kinds and percents of all members; percent 0 is no limit.
	kinds    []string
	percents []int
	member   int
	// rate together, and alone under the same sharing and percentage, in units a second.
	rate, alone float64
}

func (c *coRun) speed() float64 { return c.rate / c.alone }

// percentsOf reads a phase's name: "mps-30-70".
func percentsOf(phase string, members int) []int {
	percents := make([]int, members)
	words := strings.Split(phase, "-")
	for i := range percents {
		if words[0] != "mps" || len(words) != members+1 {
			continue
		}
		if p, err := strconv.Atoi(words[i+1]); err == nil && p < 100 {
			percents[i] = p
		}
	}
	return percents
}

// coRuns finds the co-runs of a report, in the order of their names.
func coRuns(r *record.Report) []coRun {
	all := make([]coRun, 0, len(r.Figures))
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		words := strings.Split(name, "/")
		if len(words) != 4 || words[0] != "isolation" && words[0] != "models" || words[2] == "alone" {
			continue
		}
		member, err := strconv.Atoi(words[3])
		if err != nil {
			continue
		}
		c := coRun{part: words[0], sharing: words[1], kinds: strings.Split(words[2], "+"), member: member - 1, rate: r.Figures[name].Median()}
		c.percents = percentsOf(c.sharing, len(c.kinds))
		alone := c.kinds[c.member]
		if p := c.percents[c.member]; p > 0 {
			alone += fmt.Sprint("@", p)
		}
		// Three that take turns are alone as two are.
		f, ok := r.Figures[words[0]+"/"+strings.TrimSuffix(c.sharing, "-3")+"/alone/"+alone+"/1"]
		if !ok || f.Median() == 0 || c.rate == 0 {
			continue
		}
		c.alone = f.Median()
		all = append(all, c)
	}
	return all
}

// short is a kind's name without what marks it as a model.
func short(kind string) string { return strings.TrimPrefix(kind, modelPrefix) }

// predictor predicts speeds as the shipped model does, of workloads whose profiles NVML showed.
type predictor struct {
	book    *interference.Book
	model   interference.Model
	numbers map[string]interference.Workload
}

const predictedGPU interference.GPU = 1

// fills is from which use of the SMs a workload counts as one that fills a device (interference.ClassLight).
const fills = .7

func newPredictor(r *record.Report) (*predictor, error) {
	m, err := interference.ByName("default")
	if err != nil {
		return nil, err
	}
	p := &predictor{book: interference.NewBook(m, 100), model: m, numbers: map[string]interference.Workload{}}
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		kind, ok := strings.CutSuffix(name, "/sm")
		if kind, _ = strings.CutPrefix(kind, "features/"); !ok || !strings.HasPrefix(name, "features/") {
			continue
		}
		part := "isolation"
		if strings.HasPrefix(kind, modelPrefix) {
			part = "models"
		}
		profile := interference.Profile{
			SM: r.Figures["features/"+kind+"/sm"].Median(), Bandwidth: r.Figures["features/"+kind+"/bandwidth"].Median(),
			Memory: vgpu.Bytes(r.Figures["features/"+kind+"/memory"].Median() * mebibyte), Class: interference.ClassTraining,
		}
		if rate := r.Figures[part+"/time-slicing/alone/"+kind+"/1"].Median(); rate > 0 {
			profile.Step = 1 / rate
		}
		if profile.SM < fills {
			profile.Class = interference.ClassLight
		}
		p.numbers[kind] = interference.Workload(len(p.numbers) + 1)
		if err := p.book.Declare(p.numbers[kind], predictedGPU, profile); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return p, nil
}

// speed of a member of a co-run before any observation.
func (p *predictor) speed(c *coRun) float64 {
	on := make([]interference.Tenant, len(c.kinds))
	for i, kind := range c.kinds {
		part := vgpu.WholeGPU
		if c.percents[i] > 0 {
			part = vgpu.MilliGPU(10 * c.percents[i])
		}
		on[i] = p.book.Tenant(p.numbers[kind], predictedGPU, part)
	}
	return p.model.Predict(on, nil)[c.member].Speed
}

// writeTables writes the tables of a report in Markdown.
func writeTables(w io.Writer, r *record.Report) error {
	m := r.Machine
	fmt.Fprintf(w, "%s, %d SMs, %d MiB for programs, compute capability %s, driver %s, CUDA %s, Linux %s, %d processors, PyTorch %s, %s.\n",
		m.GPU, m.SMs, m.Memory/mebibyte, m.Capability, m.Driver, m.CUDA, m.Kernel, m.CPUs, m.Torch, m.Date)
	writePercents(w, r)
	writeUsable(w, r)
	writeTimes(w, r)
	all := coRuns(r)
	p, err := newPredictor(r)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		kinds []string
	}{{"isolation", load.Kinds()}, {"models", modelKinds()}} {
		for _, sharing := range []string{"time-slicing", "mps-100-100", "mps-50-50", "mps-30-70", "mps-10-90"} {
			writeMatrix(w, all, p, part.name, sharing, part.kinds)
		}
	}
	writeThrees(w, all, p)
	writeErrors(w, all, p)
	return nil
}

func writePercents(w io.Writer, r *record.Report) {
	fmt.Fprintf(w, "\n### Percentage of the SMs\n\nOne client under MPS, alone. Throughput is a part of that of a client without a percentage.\n\n")
	fmt.Fprintln(w, "| percentage | SMs | compute-bound | bandwidth-bound |")
	fmt.Fprintln(w, "|---|---|---|---|")
	for _, p := range []int{100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5, 2} {
		fmt.Fprintf(w, "| %d | %.0f |", p, first(r, fmt.Sprintf("sm/count/%d", p)))
		for _, kind := range []string{load.Compute, load.Bandwidth} {
			fmt.Fprintf(w, " %s |", ratio(r.Figures[fmt.Sprintf("sm/%s/%d", kind, p)].Median()/r.Figures["sm/"+kind+"/none"].Median()))
		}
		fmt.Fprintln(w)
	}
}

// first value of a figure; 0 for none.
func first(r *record.Report, name string) float64 {
	if v := r.Figures[name].Values; len(v) > 0 {
		return v[0]
	}
	return 0
}

// ratio writes a number between 0 and 2 with two digits.
func ratio(v float64) string { return fmt.Sprintf("%.2f", v) }

func writeUsable(w io.Writer, r *record.Report) {
	fmt.Fprintf(w, "\n### What a context takes of the memory limit\n\nThe table has the MiB that one process can allocate in pieces of 2 MiB under a limit. The rest is its context.\n\n")
	fmt.Fprintln(w, "| limit | percentage of the SMs | usable | context |")
	fmt.Fprintln(w, "|---|---|---|---|")
	for _, p := range []int{2, 10, 20, 30, 50, 70, 100} {
		if f, ok := r.Figures[fmt.Sprintf("memory/usable/2048M-at-%d", p)]; ok {
			fmt.Fprintf(w, "| 2048 | %d | %.0f | %.0f |\n", p, f.Median(), 2048-f.Median())
		}
	}
	for _, n := range []int{1024, 512, 256} {
		f, ok := r.Figures[fmt.Sprintf("memory/usable/%dM", n)]
		switch {
		case ok && f.Median() > 0:
			fmt.Fprintf(w, "| %d | none | %.0f | %.0f |\n", n, f.Median(), float64(n)-f.Median())
		case ok:
			fmt.Fprintf(w, "| %d | none | the context does not fit: `CUDA_ERROR_OUT_OF_MEMORY` at its start | |\n", n)
		}
	}
}

func writeTimes(w io.Writer, r *record.Report) {
	fmt.Fprintf(w, "\n### How long things take\n\n| what | median | least to most | n |\n|---|---|---|---|\n")
	for _, name := range []string{
		"nvml/open", "nvml/sample/cost", "nvml/health/cost", "control/start/daemon", "control/start/first", "control/start/second",
		"control/start/without-mps", "control/start/stop", "control/adopt/cost", "control/look", "control/ready", "control/canary/idle",
		"control/canary/busy", "control/canary/tenant-without", "control/canary/tenant-with", "agent/register", "agent/tenant-without",
		"agent/tenant-with", "agent/cost",
	} {
		f, ok := r.Figures[name]
		if !ok || len(f.Values) == 0 {
			continue
		}
		least, most := f.Range()
		fmt.Fprintf(w, "| %s | %.4g %s | %.4g to %.4g | %d |\n", f.What, f.Median(), f.Unit, least, most, len(f.Values))
	}
}

// writeMatrix writes the speeds of pairs: each row a workload, each column its neighbour; measured, and predicted in brackets.
func writeMatrix(w io.Writer, all []coRun, p *predictor, part1, sharing string, kinds []string) {
	cells := map[[3]string]*coRun{}
	percents := percentsOf(sharing, 2)
	for i := range all {
		c := &all[i]
		if c.part != part1 || c.sharing != sharing || len(c.kinds) != 2 {
			continue
		}
		of, beside := c.kinds[c.member], c.kinds[1-c.member]
		side := fmt.Sprint(c.member)
		if percents[0] == percents[1] { // members are alike, so the first stands for both
			side = "0"
			if of == beside && c.member == 1 {
				continue
			}
		}
		cells[[3]string{side, of, beside}] = c
	}
	if len(cells) == 0 {
		return
	}
	titles := map[string]string{
		"time-slicing": "Time slicing, two programs without MPS", "mps-100-100": "MPS without a percentage",
		"mps-50-50": "MPS, 50 % each", "mps-30-70": "MPS, 30 and 70 %", "mps-10-90": "MPS, 10 and 90 %",
	}
	what := map[string]string{"isolation": "kernels", "models": "models"}[part1]
	fmt.Fprintf(w, "\n### %s: %s\n", titles[sharing], what)
	for side := range 2 {
		if side == 1 && percents[0] == percents[1] {
			break
		}
		fmt.Fprintln(w)
		head := "speed of ↓ beside →"
		if percents[side] > 0 && percents[0] != percents[1] {
			head = fmt.Sprintf("speed of ↓ with %d %% beside → with %d %%", percents[side], percents[1-side])
		}
		fmt.Fprintf(w, "| %s |", head)
		for _, k := range kinds {
			fmt.Fprintf(w, " %s |", short(k))
		}
		fmt.Fprintf(w, "\n|%s\n", strings.Repeat("---|", len(kinds)+1))
		for _, of := range kinds {
			fmt.Fprintf(w, "| %s |", short(of))
			for _, beside := range kinds {
				c := cells[[3]string{fmt.Sprint(side), of, beside}]
				if c == nil {
					fmt.Fprint(w, " |")
					continue
				}
				fmt.Fprintf(w, " %s (%s) |", ratio(c.speed()), ratio(p.speed(c)))
			}
			fmt.Fprintln(w)
		}
	}
}

// writeThrees writes the mean and the least speed of each kind beside two others.
func writeThrees(w io.Writer, all []coRun, p *predictor) {
	fmt.Fprintf(w, "\n### Three tenants: kernels\n\nMean and least speed of each over all fifteen pairs of neighbours; predicted in brackets.\n\n")
	fmt.Fprintln(w, "| workload | MPS, 33 % each: mean | least | time slicing: mean | least |\n|---|---|---|---|---|")
	for _, kind := range load.Kinds() {
		fmt.Fprintf(w, "| %s |", kind)
		for _, sharing := range []string{"mps-33-33-33", "time-slicing-3"} {
			var speeds, predicted []float64
			for i := range all {
				if c := &all[i]; c.sharing == sharing && c.kinds[c.member] == kind {
					speeds, predicted = append(speeds, c.speed()), append(predicted, p.speed(c))
				}
			}
			if len(speeds) == 0 {
				fmt.Fprint(w, " | |")
				continue
			}
			fmt.Fprintf(w, " %s (%s) | %s (%s) |", ratio(mean(speeds)), ratio(mean(predicted)), ratio(slices.Min(speeds)), ratio(slices.Min(predicted)))
		}
		fmt.Fprintln(w)
	}
}

func mean(v []float64) float64 {
	sum := 0.
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// writeErrors writes how wrong the shipped model is before it has observed anything.
func writeErrors(w io.Writer, all []coRun, p *predictor) {
	fmt.Fprintf(w, "\n### How wrong the shipped model is\n\nMean absolute error of predicted speeds, before anything was observed, beside that of the best constant (the mean).\n\n")
	fmt.Fprintln(w, "| co-runs | speeds | mean speed | shipped model | constant |\n|---|---|---|---|---|")
	for _, part1 := range []string{"isolation", "models"} {
		for _, sharing := range []string{"time-slicing", "mps-100-100", "mps-50-50", "mps-30-70", "mps-10-90", "mps-33-33-33", "time-slicing-3"} {
			var speeds, wrong, constant []float64
			for i := range all {
				if c := &all[i]; c.part == part1 && c.sharing == sharing {
					speeds = append(speeds, c.speed())
					wrong = append(wrong, max(c.speed()-p.speed(c), p.speed(c)-c.speed()))
				}
			}
			if len(speeds) == 0 {
				continue
			}
			for _, s := range speeds {
				constant = append(constant, max(s-mean(speeds), mean(speeds)-s))
			}
			fmt.Fprintf(w, "| %s, %s | %d | %s | %s | %s |\n", part1, sharing, len(speeds), ratio(mean(speeds)), fmt.Sprintf("%.3f", mean(wrong)),
				fmt.Sprintf("%.3f", mean(constant)))
		}
	}
}
