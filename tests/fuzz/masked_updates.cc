// Masked updates of secure aggregation, for one task.
//
// The first byte selects a whole file (0), or a header line and values. An accepted file has the
// wanted length, can be written again, and reads back the same.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "federated/masked_update.h"
#include "input.h"

namespace {

using namespace varda;

constexpr std::size_t kLength = 4;

std::string file_of(fuzz::Input input) {
  if (input.byte() == 0) return std::string(input.rest());
  const std::string header(input.line());
  std::string out(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + std::string(input.rest());
}

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const codec::Sha256 base = codec::Sha256::of("model");
  const auto file =
      federated::parse_masked(file_of(fuzz::Input(data, size)), "1-train", base, kLength);
  if (!file.ok()) {
    check(!file.error().error.message().empty());
    return 0;
  }
  check(file->values.size() == kLength && file->info.task == "1-train" && file->info.base == base);
  const auto bytes = federated::encode_masked(file->info, file->values);
  check(bytes.ok());
  const auto again = federated::parse_masked(*bytes, "1-train", base, kLength);
  check(again.ok() && again->values == file->values && again->info.metrics == file->info.metrics);
  // Whatever the clients sent, the sum is a mean of finite values or an error.
  const auto mean = federated::mean_of({.limit = 2, .clients = 3}, file->values, 2);
  if (mean.ok())
    for (const float value : mean->delta) check(value == value);
  return 0;
}
