/* A library of another version: what the real one offers, up to the version of the API that it is compiled for. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const void *(*get_api)(uint32_t version);
  const char *(*get_version_string)(void);
} ApiBase;

static const ApiBase *real(void) {
  void *library = dlopen(REAL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  return library ? ((const ApiBase *(*)(void))dlsym(library, "OrtGetApiBase"))() : NULL;
}

static const void *get_api(uint32_t version) {
  const ApiBase *base = real();
  return base && version <= API_VERSION ? base->get_api(version) : NULL;
}

static const char *get_version_string(void) { return VERSION; }

const ApiBase *OrtGetApiBase(void) {
  static const ApiBase base = {get_api, get_version_string};
  return &base;
}
