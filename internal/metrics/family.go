package metrics

// Type is the kind of a metric, in Prometheus' words.
type Type string

// Types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Family is one metric with everything that its users have to know.
type Family struct {
	// Name as scraped.
	Name string
	Type Type
	// Labels in the order of their values; the table Labels() has their meanings.
	Labels []string
	// Unit of the values, in words of people: "bytes", "seconds", "containers".
	Unit string
	// Range of the values: "0 or more", "0 to 1".
	Range string
	// Help is the meaning; the scrape page shows it too.
	Help string
	// Buckets of a histogram.
	Buckets []float64
}

// Find returns the family of a table with a name. A table without it is a mistake of the package that has the table.
func Find(table []Family, name string) Family {
	for i := range table {
		if table[i].Name == name {
			return table[i]
		}
	}
	panic("the table of metrics has no " + name)
}
