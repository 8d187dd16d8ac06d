package interference

// fittedPredictor is the predictor that is shipped.
//
// Fitted on 2026-11-22 on public measurements:
//
//   - 3000 dense networks of GPUMemNet, github.com/itu-rad/GPUMemNet at f01eb05 (CC-BY-4.0 where it has a licence)
//   - the bandwidth of 45 jobs of Lucid, github.com/S-Lab-System-Group/Lucid at 63685a3 (S-Lab License 1.0)
//
// This writes it:
//
//	go run ./evaluation fit features --features mlp_train_features_util.csv --profiles single_data.csv -o go
//
// Mean absolute errors on held-out fifths:
//
//	sm          mean           0.1143 ± 0.0041
//	sm          least-squares  0.0496 ± 0.0014
//	sm          features       0.0233 ± 0.0012
//	memory_mib  mean           288.1535 ± 14.0729
//	memory_mib  least-squares  16.5849 ± 0.8361
//	memory_mib  features       12.3789 ± 0.7063
var fittedPredictor = Predictor{
	SM: [UseTerms]float64{
		0.126257, -0.0132089, 0.00848504, -0.026118, 0.423777, -0.0737765,
		-0.277857, 0.010443, -0.16702, -0.0594402, 0.0689009, 0.00361016,
		-0.0885858, 0.00414532, 0.00493375, 0.0962849, -0.00500424, -0.0356796,
	},
	Memory:    [MemoryTerms]float64{1.52862e+09, 20.9512, 3.12082},
	Bandwidth: 0.754833,
	Range: Range{
		Least: Features{Parameters: 27, Activations: 10, Batch: 4, Depth: 2},
		Most:  Features{Parameters: 159856482, Activations: 148066, Batch: 1023, Depth: 12},
	},
	SMError:        0.0418284,
	BandwidthError: 0.0903006,
	MemoryError:    2.31304e+07,
	Widening:       0.34549,
}
