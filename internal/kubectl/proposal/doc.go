// Package proposal reads what a user wants to try on a snapshot: a KubeSchedulerConfiguration, and pods, from files.
//
// Both are read and checked by the code that the scheduler reads them with. Errors name the field and what is legal. What is read and
// makes no difference to a simulation is noted.
package proposal
