package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tandem-gpu/tandem/internal/kubectl/consumption"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// Seen is a new snapshot, or why there is none.
type Seen struct {
	Snapshot *snapshot.Snapshot
	Err      error
}

// Model is the state of the screen.
type Model struct {
	// By is one of consumption.Groups, Order one of consumption.Orders. Namespace narrows pods down, "" for all.
	By, Order, Namespace string
	// Ask returns the next snapshot, at once or after a pause.
	Ask func(first bool) tea.Cmd

	rows          []consumption.Row
	at            time.Time
	problem       string
	width, height int
	top           int
	help          bool
	// typing says that letters go into typed, the namespace to be.
	typing bool
	typed  string
	seen   *snapshot.Snapshot
}

// Init asks for the first snapshot.
func (m Model) Init() tea.Cmd { return m.Ask(true) }

// Update takes a message in.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case Seen:
		if msg.Err != nil {
			m.problem = wording.Plain(msg.Err.Error())
		} else {
			m.problem, m.seen = "", msg.Snapshot
			m = m.count()
		}
		return m, m.Ask(false)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		return m.scroll(0), nil
	case tea.KeyPressMsg:
		if m.typing {
			return m.typeKey(msg)
		}
		return m.key(msg.String())
	}
	return m, nil
}

// orders are the keys that sort.
var orders = map[string]string{"w": consumption.Waste, "u": consumption.Use, "s": consumption.Slowdown, "m": consumption.Memory, "h": consumption.Held, "n": consumption.Name}

func (m Model) key(key string) (tea.Model, tea.Cmd) {
	if order, sorts := orders[key]; sorts {
		m.Order, m.top = order, 0
		consumption.Sort(m.rows, m.Order)
		return m, nil
	}
	switch key {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "?":
		m.help = !m.help
	case "b":
		groups := consumption.Groups()
		m.By, m.top = groups[(slices.Index(groups, m.By)+1)%len(groups)], 0
		m = m.count()
	case "/":
		m.typing, m.typed = true, m.Namespace
	case "up", "k":
		m = m.scroll(-1)
	case "down", "j":
		m = m.scroll(1)
	case "pgup":
		m = m.scroll(-m.page())
	case "pgdown", "space":
		m = m.scroll(m.page())
	case "home":
		m.top = 0
	case "end":
		m = m.scroll(len(m.rows))
	}
	return m, nil
}

// typeKey takes a key while a namespace is typed.
func (m Model) typeKey(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch key := k.String(); key {
	case "ctrl+c":
		return m, tea.Quit
	case "esc":
		m.typing = false
	case "enter":
		m.typing, m.Namespace, m.top = false, m.typed, 0
		m = m.count()
	case "backspace":
		if m.typed != "" {
			m.typed = m.typed[:len(m.typed)-1]
		}
	default:
		if text := k.Key().Text; strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" { // what names of namespaces may have
			m.typed += text
		}
	}
	return m, nil
}

// count makes the rows anew.
func (m Model) count() Model {
	if m.seen == nil {
		return m
	}
	rows, err := consumption.Rows(m.seen, m.By)
	if err != nil {
		m.problem = err.Error()
		return m
	}
	m.rows, m.at = consumption.Of(rows, m.By, m.Namespace), m.seen.At
	consumption.Sort(m.rows, m.Order)
	return m.scroll(0)
}

// frame is how many lines are not rows: two at the head, one title, one at the foot.
const frame = 4

// page is how many rows the screen has.
func (m Model) page() int { return max(1, m.height-frame) }

func (m Model) scroll(by int) Model {
	m.top = max(0, min(m.top+by, len(m.rows)-m.page()))
	return m
}

// View returns the screen.
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines are those of the screen.
func (m Model) lines() []string {
	if m.help {
		return append(slices.Clone(help), "", "? goes back")
	}
	lines := []string{m.head(), m.problem}
	switch {
	case m.seen == nil && m.problem == "":
		return append(lines, "asking the scheduler")
	case m.seen != nil:
		shown := m.rows[m.top:min(len(m.rows), m.top+m.page())]
		lines = append(lines, consumption.Table(shown, m.By, m.width)...)
	}
	foot := "q quit  ? help  w u s m h n sort  b group  / namespace"
	if m.typing {
		foot = "namespace: " + m.typed + "_  (enter takes it, esc does not)"
	}
	if rest := len(m.rows) - m.top - m.page(); rest > 0 {
		foot += fmt.Sprintf("  %d more below", rest)
	}
	return append(lines, foot)
}

// head says what is shown.
func (m Model) head() string {
	of := ""
	if m.Namespace != "" {
		of = " of the namespace " + m.Namespace
	}
	since := "no state yet"
	if m.seen != nil {
		since = "state since " + m.at.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s: GPUs by %s%s, sorted by %s", since, m.By, of, m.Order)
}

// help says what the columns and keys are.
var help = []string{
	"HELD      GPUs that the pods hold",
	"USED      GPUs whose time their kernels fill, as the agents last measured it; + where pods of the row are not measured",
	"WASTE     GPUs that they hold and do not use",
	"MEMORY    device memory that they use of what they hold",
	"SLOWDOWN  the longest predicted time beside neighbours, as a multiple of the time alone",
	"RATE      what the pod reports of itself, in its own unit",
	"NOTE      pods whose shares do not fit on their devices; no other column counts them, and kubectl tandem why says more",
	"-         nobody has measured, predicted or reported it",
	"",
	"w waste   u use   s slowdown   m memory   h held   n name: sort by it",
	"b         pods, namespaces, nodes, devices",
	"/         one namespace alone; nothing and enter for all",
	"up down pgup pgdown home end: scroll",
	"q         quit",
}
