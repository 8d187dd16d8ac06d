// A CUDA program for the tests: it does what its standard input says, one call a line, and prints each result code.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;

static void *find(const char *name) {
	void *f = dlsym(library, name);
	if (!f) {
		printf("missing %s\n", name);
		exit(1);
	}
	return f;
}

#define CALL(name, types) ((int (*) types)find(name))

int main(void) {
	char line[256], word[32];
	unsigned long long pointer = 0, size = 0;
	void *context = NULL;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		puts(dlerror());
		return 1;
	}
	while (fgets(line, sizeof line, stdin)) {
		int code = -1, count = 0, device = 0;
		unsigned long long number = 0;
		sscanf(line, "%31s %llu", word, &number);
		if (!strcmp(word, "init")) {
			code = CALL("cuInit", (unsigned))(0);
		} else if (!strcmp(word, "count")) {
			code = CALL("cuDeviceGetCount", (int *))(&count);
			printf("count %d ", count);
		} else if (!strcmp(word, "version")) {
			code = CALL("cuDriverGetVersion", (int *))(&count);
			printf("version %d ", count);
		} else if (!strcmp(word, "uuid")) {
			unsigned char uuid[16];
			CALL("cuDeviceGet", (int *, int))(&device, (int)number);
			code = CALL("cuDeviceGetUuid_v2", (unsigned char *, int))(uuid, device);
			printf("uuid %02x%02x ", uuid[0], uuid[15]);
		} else if (!strcmp(word, "retain")) {
			code = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, (int)number);
			if (code == 0)
				code = CALL("cuCtxSetCurrent", (void *))(context);
		} else if (!strcmp(word, "alloc")) {
			size = number;
			code = CALL("cuMemAlloc_v2", (unsigned long long *, size_t))(&pointer, number);
		} else if (!strcmp(word, "memset")) {
			code = CALL("cuMemsetD8_v2", (unsigned long long, unsigned char, size_t))(pointer, 1, number ? number : size);
		} else if (!strcmp(word, "sync")) {
			code = CALL("cuCtxSynchronize", (void))();
		} else if (!strcmp(word, "free")) {
			code = CALL("cuMemFree_v2", (unsigned long long))(pointer);
		} else if (!strcmp(word, "release")) {
			code = CALL("cuDevicePrimaryCtxRelease_v2", (int))((int)number);
		}
		const char *name = NULL, *text = NULL;
		CALL("cuGetErrorName", (int, const char **))(code, &name);
		CALL("cuGetErrorString", (int, const char **))(code, &text);
		printf("%d %s%s\n", code, name ? name : "-", text ? "" : " without text");
		fflush(stdout);
	}
	return 0;
}
