// Package elastic is part of a tree that the test holds to the rules.
package elastic

import (
	clock "time"
)

// Wait is told the time and then looks at the clock.
var Wait = clock.Now().Add(clock.Second)
