// Package ext takes the place of traefik's nested module dynamic/ext, which is not published: types without content.
package ext

// HTTP extends the configuration of HTTP by nothing.
type HTTP struct{}

// Router extends a router by nothing.
type Router struct{}

// RouterIng extends the router of an Ingress by nothing.
type RouterIng struct{}

// ToRouter returns the extension of the router.
func (RouterIng) ToRouter() Router { return Router{} }
