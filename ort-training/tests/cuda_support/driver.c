/* A driver of one device whose memory is the host's, for the tests of what the safe layer does with the driver: copies wait in
 * their stream until it is waited for, as late as they may come, and everything wants the device's context. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201 };

struct work {
  void *to;
  const void *from; /* NULL: fill */
  size_t bytes;
  uint8_t byte;
  struct work *next;
};

struct stream {
  struct work *first, **end;
};

static struct stream default_stream;
static __thread int depth;
static int streams;
static size_t taken = (size_t)64 << 20;

static int setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

unsigned cuInit(unsigned flags) { return flags ? INVALID_VALUE : (unsigned)setting("TEST_DRIVER_INIT", 0); }
unsigned cuDriverGetVersion(int *version) { *version = setting("TEST_DRIVER_VERSION", 13000); return SUCCESS; }
unsigned cuDeviceGetCount(int *count) { *count = setting("TEST_DRIVER_DEVICES", 1); return SUCCESS; }
unsigned cuDeviceGet(int *device, int ordinal) { *device = ordinal + 40; return SUCCESS; }
unsigned cuDeviceGetName(char *name, int length, int device) {
  if (device < 40) return INVALID_VALUE;
  strncpy(name, "a device of the tests", (size_t)length);
  return SUCCESS;
}
unsigned cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (device < 40) return INVALID_VALUE;
  *value = attribute == 75 ? 9 : 0;
  return SUCCESS;
}
unsigned cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)device; return SUCCESS; }
unsigned cuCtxPushCurrent_v2(void *context) { return context ? (++depth, SUCCESS) : INVALID_CONTEXT; }
unsigned cuCtxPopCurrent_v2(void **context) { *context = NULL; return depth > 0 ? (--depth, SUCCESS) : INVALID_CONTEXT; }
unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  if (!depth) return INVALID_CONTEXT;
  *total = (size_t)1 << 30;
  *free_bytes = *total - taken;
  taken += (size_t)1 << 20;
  return SUCCESS;
}

static unsigned queue(struct stream *stream, void *to, const void *from, size_t bytes, uint8_t byte) {
  if (!depth) return INVALID_CONTEXT;
  if (!stream) stream = &default_stream;
  if (!stream->first) stream->end = &stream->first;
  struct work *work = malloc(sizeof *work);
  *work = (struct work){to, from, bytes, byte, NULL};
  *stream->end = work;
  stream->end = &work->next;
  return SUCCESS;
}

unsigned cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct stream *stream) {
  return queue(stream, (void *)to, from, bytes, 0);
}
unsigned cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct stream *stream) {
  return queue(stream, to, (const void *)from, bytes, 0);
}
unsigned cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct stream *stream) {
  return queue(stream, (void *)to, (const void *)from, bytes, 0);
}
unsigned cuMemsetD8Async(uint64_t to, uint8_t byte, size_t bytes, struct stream *stream) {
  return queue(stream, (void *)to, NULL, bytes, byte);
}

unsigned cuStreamCreate(struct stream **stream, unsigned flags) {
  if (!depth || flags != 1) return INVALID_VALUE;
  *stream = calloc(1, sizeof **stream);
  ++streams;
  return SUCCESS;
}
unsigned cuStreamDestroy_v2(struct stream *stream) {
  if (!depth || stream->first) return INVALID_VALUE;
  free(stream);
  --streams;
  return SUCCESS;
}
unsigned cuStreamSynchronize(struct stream *stream) {
  if (!depth) return INVALID_CONTEXT;
  if (!stream) stream = &default_stream;
  for (struct work *work = stream->first, *next; work; work = next) {
    next = work->next;
    if (work->from) memcpy(work->to, work->from, work->bytes);
    else memset(work->to, work->byte, work->bytes);
    free(work);
  }
  stream->first = NULL;
  return SUCCESS;
}

unsigned cuGetErrorName(unsigned code, const char **name) {
  *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_THE_TESTS";
  return SUCCESS;
}
unsigned cuGetErrorString(unsigned code, const char **text) {
  *text = code == 100 ? "no CUDA-capable device is detected" : "an error of the tests";
  return SUCCESS;
}

/* For the tests. */
int test_driver_streams(void) { return streams; }
int test_driver_depth(void) { return depth; }
