package lifetimes

import (
	"math"
	"slices"
	"sort"
)

// refits is how often a rival is fitted anew while moments are predicted, each time from all jobs that ended by then.
const refits = 10

// rival predicts the logarithm of a length from attributes. Its distribution is that of its errors on the jobs that it was fitted from,
// and at an age that of those errors which the age leaves possible, as for pkg/lifetime.
type rival struct {
	// fit returns the predicted logarithms of the jobs to predict, and of the jobs to learn from.
	fit func(from, predict []*job) (predicted, fitted []float64, err error)
}

func (r rival) answers(jobs []job, moments []moment) ([]answer, error) {
	ended, all := byEnd(jobs), make([]answer, 0, len(moments))
	for part := range refits {
		now := moments[len(moments)*part/refits : len(moments)*(part+1)/refits]
		if len(now) == 0 {
			continue
		}
		known := sort.Search(len(ended), func(i int) bool { return ended[i].end() > now[0].at() })
		asked := make([]*job, len(now))
		for i, m := range now {
			asked[i] = m.job
		}
		predicted, fitted, err := r.fit(ended[:known], asked)
		if err != nil {
			return nil, err
		}
		errs := make([]float64, known)
		for i, j := range ended[:known] {
			errs[i] = math.Log(j.length) - fitted[i]
		}
		slices.Sort(errs)
		for i, m := range now {
			all = append(all, residual(predicted[i], errs, m.age))
		}
	}
	return all, nil
}

// residual returns the deciles of exp(predicted + error) - age, over the errors for which that is positive. If there is none, the job
// runs for as long again as it has run in half of the cases.
func residual(predicted float64, errs []float64, age float64) (a answer) {
	first := 0
	if age > 0 {
		first = sort.Search(len(errs), func(i int) bool { return predicted+errs[i] > math.Log(age) })
	}
	left := errs[first:]
	for d := range a {
		p := float64(d+1) / 10
		if len(left) == 0 {
			a[d] = age * p / (1 - p)
			continue
		}
		a[d] = math.Exp(predicted+left[int(p*float64(len(left)))]) - age
	}
	return a
}

// userMedian predicts the median length of the user's jobs, and that of all for a user without any.
func userMedian(from, predict []*job) (predicted, fitted []float64, err error) {
	lengths := map[int][]float64{}
	for _, j := range from {
		lengths[j.category[0]] = append(lengths[j.category[0]], math.Log(j.length))
		lengths[-1] = append(lengths[-1], math.Log(j.length))
	}
	median := map[int]float64{}
	for user, all := range lengths {
		slices.Sort(all)
		median[user] = all[len(all)/2]
	}
	of := func(jobs []*job) []float64 {
		out := make([]float64, len(jobs))
		for i, j := range jobs {
			m, ok := median[j.category[0]]
			if !ok {
				m = median[-1]
			}
			out[i] = m
		}
		return out
	}
	return of(predict), of(from), nil
}
