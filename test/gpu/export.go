package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/test/gpu/record"
)

func exportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "export REPORT FOLDER", Short: "Writes pairs.csv and profiles.csv of a report, which `go run ./evaluation interference` reads", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return err
			}
			r, err := record.Open(args[0])
			if err != nil {
				return err
			}
			return errors.Join(toFile(filepath.Join(args[1], "pairs.csv"), r, writePairs), toFile(filepath.Join(args[1], "profiles.csv"), r, writeProfiles))
		},
	}
}

func toFile(path string, r *record.Report, write func(io.Writer, *record.Report) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f, r), f.Close())
}

// sharingOf is "mps" or "time-slicing".
func sharingOf(phase string) string {
	if strings.HasPrefix(phase, "mps-") {
		return "mps"
	}
	return "time-slicing"
}

func whole(percent int) string {
	if percent == 0 {
		return "100"
	}
	return fmt.Sprint(percent)
}

// writePairs writes one row for each pair: throughputs together, and alone under the same percentage.
func writePairs(w io.Writer, r *record.Report) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"gpu", "sharing", "model1", "percent1", "rate1", "solo_rate1", "model2", "percent2", "rate2", "solo_rate2"}) // Error returns it
	all := coRuns(r)
	for i := range all {
		// The members of a pair follow each other.
		a := &all[i]
		if len(a.kinds) != 2 || a.member != 0 || i+1 == len(all) {
			continue
		}
		b := &all[i+1]
		_ = out.Write([]string{
			r.Machine.GPU, sharingOf(a.sharing), short(a.kinds[0]), whole(a.percents[0]), number(a.rate), number(a.alone),
			short(b.kinds[1]), whole(b.percents[1]), number(b.rate), number(b.alone),
		})
	}
	out.Flush()
	return out.Error()
}

func number(v float64) string { return fmt.Sprintf("%.6g", v) }

// writeProfiles writes one row for each workload under each percentage: its throughput alone, and what NVML showed of it alone
// on the whole device.
func writeProfiles(w io.Writer, r *record.Report) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"gpu", "sharing", "model", "percent", "rate", "gpu_util", "gmem_util", "gmem"}) // Error returns it
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.Figures)) {
		words := strings.Split(name, "/")
		if len(words) != 5 || words[2] != "alone" || words[4] != "1" {
			continue
		}
		kind, percent, limited := strings.Cut(words[3], "@")
		if !limited {
			percent = "100"
		}
		key := strings.Join([]string{sharingOf(words[1]), kind, percent}, "/")
		f := "features/" + kind
		if seen[key] || len(r.Figures[f+"/sm"].Values) == 0 {
			continue
		}
		seen[key] = true
		_ = out.Write([]string{
			r.Machine.GPU, sharingOf(words[1]), short(kind), percent, number(r.Figures[name].Median()),
			number(100 * r.Figures[f+"/sm"].Median()), number(100 * r.Figures[f+"/bandwidth"].Median()), number(r.Figures[f+"/memory"].Median()),
		})
	}
	out.Flush()
	return out.Error()
}
