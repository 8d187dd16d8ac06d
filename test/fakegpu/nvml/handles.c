#include "abi.h"

char fake_device_handles[FAKE_DEVICES];
char fake_mig_handles[FAKE_DEVICES * FAKE_INSTANCES];
