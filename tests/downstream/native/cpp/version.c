#include <onnxruntime_c_api.h>

const char* native_version(void) { return OrtGetApiBase()->GetVersionString(); }
