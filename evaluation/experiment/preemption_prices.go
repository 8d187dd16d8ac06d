package experiment

import (
	"fmt"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ParsePrices reads prices of evictions, each as a time of one GPU: "violation=24h,step=1h". The others are the
// scheduler's defaults.
func ParsePrices(list string) (preemption.Prices, error) {
	prices := preemption.DefaultPrices()
	if list == "" {
		return prices, nil
	}
	for _, text := range strings.Split(list, ",") {
		name, value, _ := strings.Cut(text, "=")
		price, known := map[string]*int64{
			"violation": &prices.Violation, "step": &prices.Step, "broken": &prices.Broken, "serving": &prices.Serving, "victim": &prices.Victim,
		}[name]
		if !known {
			return prices, fmt.Errorf("unknown name %q, known are violation, step, broken, serving and victim", name)
		}
		most := time.Duration(preemption.MaxPrice/int64(vgpu.WholeGPU)) * time.Second
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 || d > most {
			return prices, fmt.Errorf("%s is %q, legal is a time from 0s to %v", name, value, most)
		}
		*price = int64(vgpu.WholeGPU) * int64(d/time.Second)
	}
	return prices, nil
}
