package interference

// fittedCurves are the curves by class.
var fittedCurves = [classes]Curve{
	ClassUnknown:   {Fixed: 0, Error: 0.25},
	ClassLight:     {Fixed: 0.96, Error: 0.1},
	ClassTraining:  {Fixed: 0.25, Error: 0.15},
	ClassInference: {Fixed: 0.28, Error: 0.1},
	ClassPrefill:   {Fixed: 0.43, Error: 0.1},
	ClassDecode:    {Fixed: 0.69, Error: 0.1},
}
