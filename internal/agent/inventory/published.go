package inventory

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Enforcement is what keeps shares of the device in their bounds.
func Enforcement(d *Device) v1alpha1.Enforcement {
	if d.Shared() {
		return v1alpha1.EnforcementCooperative
	}
	return v1alpha1.EnforcementNone
}

// Status is the inventory as the API shows it, without conditions.
func Status(devices []Device, driver string) v1alpha1.GPUNodeStatus {
	s := v1alpha1.GPUNodeStatus{DriverVersion: driver, DeviceCount: int32(len(devices))}
	models := make([]string, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		s.Devices = append(s.Devices, gpuDevice(d))
		models = append(models, config.ModelName(d.Model))
		if d.Sick == nil {
			s.HealthyCount++
			s.SlotCount += int32(d.Slots)
		}
	}
	slices.Sort(models)
	s.Models = strings.Join(slices.Compact(models), ",")
	return s
}

func gpuDevice(d *Device) v1alpha1.GPUDevice {
	g := v1alpha1.GPUDevice{
		ID:                d.ID,
		Index:             int32(d.Index),
		Model:             config.ModelName(d.Model),
		Memory:            *resource.NewQuantity(d.Memory, resource.BinarySI),
		Slots:             int32(d.Slots),
		Contexts:          int32(d.Contexts),
		ContextsUsed:      int32(d.ContextsUsed),
		Usage:             d.Usage,
		Tenants:           d.Tenants,
		ComputeCapability: fmt.Sprintf("%d.%d", d.ComputeMajor, d.ComputeMinor),
		PCIBusID:          d.PCIBusID,
		Links:             d.Links,
		Health:            v1alpha1.Healthy,
		Enforcement:       Enforcement(d),
	}
	if d.NUMANode >= 0 {
		numa := int32(d.NUMANode)
		g.NUMANode = &numa
	}
	if d.Sick != nil {
		g.Health, g.Reason, g.Message = v1alpha1.Unhealthy, d.Sick.Reason, Shorten(d.Sick.Message, 1024)
	}
	return g
}

// Shorten cuts a text to at most n bytes, at a boundary of a character.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
