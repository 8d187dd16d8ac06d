package messages

// Row is one message.
type Row struct {
	// Reason is the word by which programs and people tell the message from others.
	Reason string
	// Says has parts of the text, with … for what differs from case to case, and · between texts of which one is said; "" where the whole
	// text differs.
	Says string
	// Means says what has happened, Do what helps.
	Means, Do string
}

// Section is the messages of one kind.
type Section struct {
	Title string
	// Where says where users see the messages, and who writes them.
	Where string
	// Packages have the messages in their source: folders of the repository.
	Packages []string
	Rows     []Row
}

// Sections returns the whole table.
func Sections() []Section {
	return []Section{
		schedulerEvents, preemptionEvents, shareRefusals, gangRefusals, preemptionRefusals, containerStarts,
		nodeReady, devicesHealthy, deviceReasons, monitored, podsKnown, profiles,
		elasticEvents, elasticTargets, resizable, rateReached, fleetReasons, fleetConditions, notebookEvents, refusedStarts, admissionChecks,
	}
}
