// The parts of NVML's binary interface that the fake speaks, with the layout of nvml.h (NVML API 13).
// TestLayout of package fakegpu checks it through go-nvml, which is compiled against the real header.
#ifndef TANDEM_FAKE_NVML_ABI_H
#define TANDEM_FAKE_NVML_ABI_H

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned long ulong_set;

typedef struct { char busIdLegacy[16]; u32 domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } fake_pci;
typedef struct { u64 total, free, used; } fake_memory;
typedef struct { u32 version; u64 total, reserved, free, used; } fake_memory_v2;
typedef struct { u32 gpu, memory; } fake_utilization;
typedef struct { u32 pid; u64 memory; } fake_process_v1;
typedef struct { u32 pid; u64 memory; u32 gpuInstance, computeInstance; } fake_process;
typedef struct { void *device; u64 type, data; u32 gpuInstance, computeInstance; } fake_event;

typedef struct { u32 pid; u64 timestamp; u32 sm, memory, encoder, decoder; } fake_sample;
typedef struct { u32 version, sensor; int temperature; } fake_temperature;
typedef struct { u32 field, scope; long long timestamp, latency; u32 kind; int code; u64 value; } fake_field;
typedef struct {
	u32 multiprocessors, copyEngines, decoders, encoders, jpeg, ofa, gpuSlices, computeSlices;
	u64 memoryMiB;
} fake_attributes;
typedef struct {
	u32 id, p2p, slices, instances, multiprocessors, copyEngines, decoders, encoders, jpeg, ofa;
	u64 memoryMiB;
} fake_gpu_profile;
typedef struct { u32 id, slices, instances, multiprocessors, copyEngines, decoders, encoders, jpeg, ofa; } fake_compute_profile;
typedef struct { void *device; u32 id, profile, start, size; } fake_gpu_instance_info;
typedef struct { void *device, *instance; u32 id, profile, start, size; } fake_compute_instance_info;

_Static_assert(sizeof(fake_pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(fake_memory) == 24, "nvmlMemory_t");
_Static_assert(sizeof(fake_memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(fake_utilization) == 8, "nvmlUtilization_t");
_Static_assert(sizeof(fake_process_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(fake_process) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(fake_event) == 32, "nvmlEventData_t");

_Static_assert(sizeof(fake_sample) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(fake_temperature) == 12, "nvmlTemperature_v1_t");
_Static_assert(sizeof(fake_field) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(fake_attributes) == 40, "nvmlDeviceAttributes_t");
_Static_assert(sizeof(fake_gpu_profile) == 48, "nvmlGpuInstanceProfileInfo_t");
_Static_assert(sizeof(fake_compute_profile) == 36, "nvmlComputeInstanceProfileInfo_t");
_Static_assert(sizeof(fake_gpu_instance_info) == 24, "nvmlGpuInstanceInfo_t");
_Static_assert(sizeof(fake_compute_instance_info) == 32, "nvmlComputeInstanceInfo_t");

// A handle is an address of real memory, since callers hold handles as pointers. The slot of a strange one is -1.
// FAKE_HANDLES is more UUIDs than one process ever sees.
enum { FAKE_HANDLES = 4096 };
void *fake_device(int slot);
int fake_device_slot(const void *handle);
void *fake_gpu_instance(int slot);
int fake_gpu_instance_slot(const void *handle);
void *fake_compute_instance(int slot);
int fake_compute_instance_slot(const void *handle);

#endif
