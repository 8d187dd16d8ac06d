package interference

// fittedCurves are the curves that are shipped, by class.
//
// Fitted on 2026-11-22 on 5575 public measurements of work on parts of the SMs, of:
//
//   - iGniter, github.com/icloud-ecnu/igniter at b1ff2ab (V100, MPS; without a licence)
//   - ParvaGPU, github.com/MunQ-Lee/ParvaGPU_SC24 at 5f3de1e (A100, MIG; MIT)
//   - MISO, github.com/boringlee24/socc22-miso at 39b1ee6 (A100, MIG; MIT)
//   - MuxServe, github.com/hao-ai-lab/MuxServe at 2231480 (A100, MPS; without a licence)
//
// This writes it:
//
//	go run ./evaluation fit curves --curves v100_mps_latency_throughput.csv --curves a100_mig_mps_profile.csv \
//	  --curves mig_slice_step_time.csv --curves llama_mps_profile_a100.csv -o go
//
// Behind each are the mean absolute errors of the speed: on models that were held out, of a speed in proportion to the
// SMs, of a speed that they do not matter to.
var fittedCurves = [classes]Curve{
	ClassUnknown:   {Fixed: 0.00, Error: 0.29}, // 0.227; 0.227, 0.198
	ClassLight:     {Fixed: 0.97, Error: 0.09}, // 0.049; 0.371, 0.052
	ClassTraining:  {Fixed: 0.25, Error: 0.15}, // 0.103; 0.124, 0.480
	ClassInference: {Fixed: 0.29, Error: 0.10}, // 0.069; 0.093, 0.426
	ClassPrefill:   {Fixed: 0.44, Error: 0.06}, // 0.040; 0.118, 0.279
	ClassDecode:    {Fixed: 0.67, Error: 0.11}, // 0.083; 0.205, 0.203
}
