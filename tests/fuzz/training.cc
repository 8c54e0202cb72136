// Settings and checkpoints of training runs.
//
// The first byte chooses. For a checkpoint the target appends the digest, because the fuzzer would
// never find one. What is read and written again reads back the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "codec/digest.h"
#include "codec/json.h"
#include "input.h"
#include "training/internal/run_checkpoint.h"
#include "training/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda;
  fuzz::Input input(data, size);
  if (input.byte() == 'c') {
    std::string bytes = "VARDARU1" + std::string(input.rest());
    const codec::Sha256 digest = codec::Sha256::of(bytes);
    bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
    const auto first = training::RunCheckpoint::decode(bytes);
    if (!first.ok()) return 0;
    const std::string written = first->encode();
    const auto second = training::RunCheckpoint::decode(written);
    if (!second.ok() || second->encode() != written) std::abort();
    return 0;
  }
  const auto json = codec::parse_json(input.rest());
  if (!json.ok()) return 0;
  const auto settings = training::parse_settings(*json);
  if (!settings.ok()) return 0;
  const auto again = training::parse_settings(training::to_json(*settings));
  if (!again.ok() || !(training::to_json(*again) == training::to_json(*settings))) std::abort();
  return 0;
}
