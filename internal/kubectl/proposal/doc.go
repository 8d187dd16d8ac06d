// Package proposal reads what a user wants to try on a snapshot: a KubeSchedulerConfiguration, and pods, from files.
//
// Both are read and checked by the code that the scheduler reads them with. Errors name the field and what is legal. The package
// notes fields that it reads and that make no difference to a simulation.
package proposal
