package placement

import _ "testing"
