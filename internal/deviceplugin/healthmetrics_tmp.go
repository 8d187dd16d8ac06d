package deviceplugin

import "time"

type quiet struct{}

func (quiet) SetHealth(string, string)             {}
func (quiet) SetMonitored(string, bool)            {}
func (quiet) Recycled(string, string)              {}
func (quiet) XID(string, string)                   {}
func (quiet) Probed(string, time.Duration, string) {}
func (quiet) ForgetDevice(string)                  {}
