package vgpu

// MilliGPU is compute in thousandths of one device.
type MilliGPU int64

// Bytes is an amount of device memory.
type Bytes int64

// Slots counts slots of devices. What part of a device a slot is depends on the device: 1/N.
type Slots int64

// WholeGPU is the compute of one device.
const WholeGPU MilliGPU = 1000
