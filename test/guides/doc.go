// Package guides runs the commands that README.md and docs/guides show, against a real API server on which Tandem is
// installed, and wants for each block of commands that it is run here, or that its page says which other test runs it or what
// it needs that no test has.
package guides
