#include "abi.h"

static char devices[FAKE_HANDLES];
static char gpu_instances[FAKE_HANDLES];
static char compute_instances[FAKE_HANDLES];

static int position(const void *handle, const char *first) {
	const char *p = handle;
	return p >= first && p < first + FAKE_HANDLES ? (int)(p - first) : -1;
}

void *fake_device(int slot) { return &devices[slot]; }
int fake_device_slot(const void *handle) { return position(handle, devices); }
void *fake_gpu_instance(int slot) { return &gpu_instances[slot]; }
int fake_gpu_instance_slot(const void *handle) { return position(handle, gpu_instances); }
void *fake_compute_instance(int slot) { return &compute_instances[slot]; }
int fake_compute_instance_slot(const void *handle) { return position(handle, compute_instances); }
