// Package plots draws the results of simulations as SVG and PNG files.
//
// It decides how figures look: a line per policy, always in the same colour of a palette that colour-blind people can tell
// apart, a legend beside the axes, titles with units. It computes nothing but where a line goes. The same series give the
// same bytes.
package plots
