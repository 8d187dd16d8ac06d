// Package archtest checks which package may import which.
//
// The rules keep what decides (pkg/) apart from what touches the world (internal/): core packages import only lower core
// packages and a short list of the standard library, plugins do not know each other, the agent links nothing that schedules,
// the simulator stays out of production, nothing but tests imports the laboratory (evaluation/), and no production package
// imports a fake. The package reads source files itself, so that the test is run
// again whenever one of them changes.
package archtest
