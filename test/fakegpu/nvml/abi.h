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

_Static_assert(sizeof(fake_pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(fake_memory) == 24, "nvmlMemory_t");
_Static_assert(sizeof(fake_memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(fake_utilization) == 8, "nvmlUtilization_t");
_Static_assert(sizeof(fake_process_v1) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(fake_process) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(fake_event) == 32, "nvmlEventData_t");

// A handle is an address of real memory, since callers hold handles as pointers. The index of a strange one is -1.
enum { FAKE_DEVICES = 64, FAKE_INSTANCES = 8 };
void *fake_device(int index);
int fake_device_index(const void *handle);
void *fake_instance(int index);
int fake_instance_index(const void *handle);

#endif
