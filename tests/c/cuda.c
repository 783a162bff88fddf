/* CUDA on the C side: once a device is set, every session is made on it. */
#include "parity.h"

static int device = -1;

void parity_use_cuda(int number) { device = number; }

OrtStatus *parity_append_cuda(OrtSessionOptions *options) {
  if (device < 0) return NULL;
  char number[16];
  snprintf(number, sizeof number, "%d", device);
  /* The same kernels in every run: no algorithm is chosen by timing, and products keep all their bits. */
  const char *keys[] = {"device_id", "cudnn_conv_algo_search", "use_tf32"};
  const char *values[] = {number, "DEFAULT", "0"};
  OrtCUDAProviderOptionsV2 *cuda = NULL;
  OrtStatus *status = parity_ort()->CreateCUDAProviderOptions(&cuda);
  if (status != NULL) return status;
  status = parity_ort()->UpdateCUDAProviderOptions(cuda, keys, values, 3);
  if (status == NULL) status = parity_ort()->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
  parity_ort()->ReleaseCUDAProviderOptions(cuda);
  return status;
}
