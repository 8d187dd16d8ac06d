// Package config reads the configuration file of the agent, checks it, and knows the default of every setting.
//
// It decides which values are legal. It does nothing with the settings; each part of the agent is given its own.
package config
