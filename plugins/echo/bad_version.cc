// A plug-in with a nonexistent ABI version, for a test of the error.
#include <cstdint>

#include "infer/plugin_abi.h"

extern "C" __attribute__((visibility("default"))) const varda_engine_api* varda_engine(
    std::uint32_t, const varda_engine_host*) {
  static constexpr varda_engine_api kApi = {sizeof(varda_engine_api),
                                            7,
                                            "bad-version",
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            nullptr};
  return &kApi;
}
