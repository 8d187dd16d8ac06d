#include "abi.h"

static char devices[FAKE_DEVICES];
static char instances[FAKE_DEVICES * FAKE_INSTANCES];

static int position(const void *handle, const char *first, int count) {
	const char *p = handle;
	return p >= first && p < first + count ? (int)(p - first) : -1;
}

void *fake_device(int index) { return &devices[index]; }
int fake_device_index(const void *handle) { return position(handle, devices, FAKE_DEVICES); }
void *fake_instance(int index) { return &instances[index]; }
int fake_instance_index(const void *handle) { return position(handle, instances, FAKE_DEVICES * FAKE_INSTANCES); }
