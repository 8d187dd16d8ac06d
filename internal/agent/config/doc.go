// Package config reads the configuration file of the agent, checks it, and knows the default of every setting.
//
// The package decides which values are legal. Each part of the agent applies its own settings.
package config
