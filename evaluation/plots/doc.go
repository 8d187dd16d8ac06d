// Package plots draws the results of simulations as SVG and PNG files.
//
// The package decides how figures look: a line per policy, always in the same colour of a palette for colour-blind
// people, a legend beside the axes, titles with units. The package computes nothing but the positions of lines. The
// same series give the same bytes.
package plots
