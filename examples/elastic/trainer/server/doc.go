// Package server is a parameter server of a training.
//
// Server 0 is also the coordinator: it carries out what package group decides. Each member keeps a connection to it, and is a
// member as long as the connection lasts. Workers read parameters from all servers and send gradients to them over connections
// of their own.
package server
