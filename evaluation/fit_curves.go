package main

import (
	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func fitCurvesCommand() *cobra.Command {
	var paths []string
	var form fitted
	c := &cobra.Command{
		Use:   "curves --curves FILE.csv…",
		Short: "Fits how the speed of work follows the part of the SMs that it may use",
		Long: `Fits how the speed of work follows the part of the SMs that it may use, a curve per class of work.

The files are those of iGniter and MuxServe (parts by MPS percentage), MISO and ParvaGPU (parts by MIG slice); all of them
are needed for all classes. Work is light, whatever it is, if a batch of twice the size takes less than 1.3 times as long on
the device alone, or if it is training with kernels in less than 70 % of the time. The columns are
  fixed         the part of the time on the whole device that does not depend on the SMs
  MAE           mean absolute error of the speed as a part of that on the whole device
  held out      the same on families of models that were not fitted, each in turn
  proportional  of a speed that follows the SMs
  unaffected    of a speed that does not
  below proportional  part of the points that are over 5 % slower than in proportion to the SMs
Work of an unknown class is taken to be proportional. The second table has what the memory bandwidth on a part of the SMs
could follow, where it was measured.`,
		Example: `  evaluation fit curves --curves v100_mps_latency_throughput.csv --curves a100_mig_mps_profile.csv \
      --curves mig_slice_step_time.csv --curves llama_mps_profile_a100.csv -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			files, err := curveFiles(paths)
			if err != nil {
				return err
			}
			fit := experiment.CurveFit{Traces: files}
			result, err := fit.Run()
			if err != nil {
				return err
			}
			return form.write(c.OutOrStdout(), result)
		},
	}
	addCurves(c, &paths)
	form.addFlags(c)
	return c
}
