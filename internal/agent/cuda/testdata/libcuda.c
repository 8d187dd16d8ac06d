/* A libcuda.so.1 for tests: every function writes its name to the file FAKE_LOG, and the one that FAKE_FAIL names
 * returns FAKE_CODE. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long devptr;

static int answer(const char *name) {
	const char *log = getenv("FAKE_LOG"), *fail = getenv("FAKE_FAIL"), *code = getenv("FAKE_CODE");
	FILE *f = fopen(log, "a");
	if (f) {
		fprintf(f, "%s\n", name);
		fclose(f);
	}
	return fail && strcmp(fail, name) == 0 ? atoi(code) : 0;
}

int cuInit(unsigned flags) { return flags == 0 ? answer("cuInit") : 1; }
int cuDeviceGetCount(int *n) {
	*n = getenv("FAKE_NONE") ? 0 : 1;
	return answer("cuDeviceGetCount");
}
int cuDeviceGet(int *d, int ordinal) {
	*d = ordinal + 41;
	return answer("cuDeviceGet");
}
int cuDevicePrimaryCtxRetain(void **context, int d) {
	*context = (void *)0x1234;
	return d == 41 ? answer("cuDevicePrimaryCtxRetain") : 101;
}
int cuDevicePrimaryCtxRelease_v2(int d) { return d == 41 ? answer("cuDevicePrimaryCtxRelease_v2") : 101; }
int cuCtxSetCurrent(void *context) { return context == (void *)0x1234 ? answer("cuCtxSetCurrent") : 201; }
int cuMemAlloc_v2(devptr *p, size_t n) {
	*p = 0x7f0000000000ULL;
	return n == 1 << 20 ? answer("cuMemAlloc_v2") : 1;
}
int cuMemsetD8_v2(devptr p, unsigned char c, size_t n) {
	return p == 0x7f0000000000ULL && c == 0xA5 && n == 1 << 20 ? answer("cuMemsetD8_v2") : 1;
}
int cuMemFree_v2(devptr p) { return p == 0x7f0000000000ULL ? answer("cuMemFree_v2") : 1; }
int cuCtxSynchronize(void) { return answer("cuCtxSynchronize"); }
int cuGetErrorName(int code, const char **text) {
	*text = code == 807 ? "CUDA_ERROR_MPS_SERVER_NOT_READY" : NULL;
	return code == 807 ? 0 : 1;
}
#ifndef WITHOUT_ERROR_STRING
int cuGetErrorString(int code, const char **text) {
	*text = code == 807 ? "not ready" : NULL;
	return code == 807 ? 0 : 1;
}
#endif
