// Checkpoints of training.
//
// The target appends the digest, because the fuzzer would never find one. Each checkpoint that is
// read is written back to the same bytes.
#include "train/internal/checkpoint.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "codec/digest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda;
  std::string bytes = "VARDATR1" + std::string(reinterpret_cast<const char*>(data), size);
  const codec::Sha256 digest = codec::Sha256::of(bytes);
  bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  const auto checkpoint = train::Checkpoint::decode(bytes);
  if (checkpoint.ok() && checkpoint->encode() != bytes) std::abort();
  return 0;
}
