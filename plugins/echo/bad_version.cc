// A plug-in of an ABI version that does not exist, for the test that such a one is refused.
#include <cstdint>

#include "infer/plugin_abi.h"

extern "C" __attribute__((visibility("default"))) const varda_engine_api* varda_engine(std::uint32_t, const varda_engine_host*) {
  static constexpr varda_engine_api kApi = {
      sizeof(varda_engine_api), 7, "bad-version", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  return &kApi;
}
