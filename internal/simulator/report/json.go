package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// JSON writes v indented by two spaces, with a newline at the end. The same value gives the same bytes.
func JSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// decimals is how many of them a figure keeps. More would show digits that another processor may round otherwise.
const decimals = 10000

// Round keeps four decimals of a figure, so that its text does not depend on how a processor rounds the last bits.
func Round(x float64) float64 { return math.Round(x*decimals) / decimals }
