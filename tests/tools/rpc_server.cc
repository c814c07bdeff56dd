// A server of ggml's RPC backend on this processor: ebb_rpc_server HOST:PORT
#include <ggml-backend.h>
#include <ggml-rpc.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: ebb_rpc_server HOST:PORT\n");
    return 2;
  }
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  ggml_backend_rpc_start_server(argv[1], nullptr, /*n_threads=*/1, /*n_devices=*/1, &device);
  return 1;
}
