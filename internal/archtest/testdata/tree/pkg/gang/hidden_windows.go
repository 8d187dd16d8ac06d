package gang

import _ "net"
