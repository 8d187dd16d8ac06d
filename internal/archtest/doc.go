// Package archtest checks which package may import which.
//
// The rules separate the packages that decide (pkg/) from those that touch the world (internal/). Core packages import
// only lower core packages and a short list of the standard library, plugins do not import each other, and the agent
// links no scheduling code. The simulator stays out of production, only tests import the laboratory (evaluation/), and
// no production package imports a fake. In kubectl tandem, the checks of an installation, the table of top and the words
// of events ask nobody. The package reads source files itself, so that go test runs it again whenever one of them
// changes.
package archtest
