package interference

// Table holds measured speeds of workloads in pairs. The zero value is empty.
type Table struct {
	speeds map[[2]Workload]float64
}

// Set sets the speed of a workload beside another; the last call counts.
func (t *Table) Set(of, beside Workload, speed float64) {
	if t.speeds == nil {
		t.speeds = map[[2]Workload]float64{}
	}
	t.speeds[[2]Workload{of, beside}] = speed
}

// Of returns the speed of a workload beside another, and whether there is a measurement.
func (t *Table) Of(of, beside Workload) (float64, bool) {
	s, ok := t.speeds[[2]Workload{of, beside}]
	return s, ok
}

// WithTable returns the model with the table; the model itself predicts where the table lacks a pair of the tenants.
// The speed of three together is the product of their pairs' speeds.
func (m Model) WithTable(t *Table) Model {
	m.table = t
	return m
}

// predict sets the speeds, and reports whether it has all pairs.
func (t *Table) predict(on []Tenant, out []Prediction) bool {
	for i := range on {
		for j := range on {
			if i == j {
				continue
			}
			s, ok := t.Of(on[i].Workload, on[j].Workload)
			if !ok {
				for k := range out {
					out[k] = Prediction{Speed: 1}
				}
				return false
			}
			out[i].Speed *= s
		}
		out[i].Speed = max(slowest, out[i].Speed)
	}
	return true
}
