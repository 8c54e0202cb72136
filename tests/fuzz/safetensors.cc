// Files of weights.
//
// The first byte selects a whole file (0), or a header line and values: the fuzzer would hardly
// find the length of the header. Tensors that are read are written and read back with the same
// bytes.
#include "federated/safetensors.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "federated/weights.h"
#include "input.h"

namespace {

using namespace varda;

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
  const auto file = federated::Safetensors::of(file_of(fuzz::Input(data, size)));
  if (!file.ok()) return 0;
  std::vector<tensor::Named> tensors;
  for (const federated::SafetensorsEntry& entry : file->header().entries()) {
    const auto tensor = file->tensor(entry.name);
    if (!tensor.ok()) return 0;  // a BOOL of another value than 0 and 1
    tensors.push_back({entry.name, *tensor});
  }
  const std::string written =
      federated::write_safetensors(tensors, file->header().metadata()).value();
  const auto again = federated::Safetensors::of(written).value();
  check(again.header().metadata() == file->header().metadata());
  check(again.header().entries().size() == tensors.size());
  for (const tensor::Named& one : tensors) {
    const tensor::Tensor read = again.tensor(one.name).value();
    check(read.dtype() == one.tensor.dtype() && read.shape() == one.tensor.shape());
    check(read.bytes().size() == one.tensor.bytes().size() &&
          std::memcmp(read.bytes().data(), one.tensor.bytes().data(), read.bytes().size()) == 0);
  }
  const auto weights = federated::Weights::from(*file);
  if (!weights.ok()) return 0;
  const auto bytes = weights->to_safetensors();
  if (!bytes.ok())
    return 0;  // an F64 value rounds to infinity only as a float; F16 keeps its range
  const auto read = federated::Weights::parse(*bytes).value();
  check(read.layout() == weights->layout());
  return 0;
}
