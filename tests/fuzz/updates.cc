// Updates of clients, against a small model.
//
// The first byte selects a whole file (0), or a header line and values. An accepted update reads
// the same in every block, has finite values, and their norm. Its values can be encoded again.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "federated/update.h"
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
  static const federated::LayoutPointer layout =
      federated::Layout::make({{"a", tensor::DType::kFp32, {3}},
                               {"b", tensor::DType::kFp16, {2, 2}},
                               {"c", tensor::DType::kFp32, {260}}})
          .value();
  const std::string file = file_of(fuzz::Input(data, size));
  // A record of an earlier check makes open() skip the values: reads must stay inside their blocks.
  const auto unchecked =
      federated::UpdateReader::of(file, layout, {.checked = federated::UpdateLimits::Checked{}});
  std::vector<float> whole(layout->size()), block(7);
  if (unchecked.ok()) (*unchecked)->read(0, whole);
  const auto update = federated::UpdateReader::of(file, layout);
  if (!update.ok()) return 0;
  check(unchecked.ok());
  (*update)->read(0, whole);
  double squares = 0;
  for (const double value : whole) {
    check(std::isfinite(value));
    squares += value * value;
  }
  check(std::abs(std::sqrt(squares) - (*update)->norm()) <= 1e-9 * (*update)->norm());
  for (std::size_t first = 0; first + block.size() <= whole.size(); first += 3) {
    const auto view = (*update)->view(first, block);
    check(std::equal(view.begin(), view.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
    (*update)->read_control(first, block);
    for (const float value : block) check(std::isfinite(value));
  }
  const auto again = federated::encode_update((*update)->info(), *layout, whole);
  check(again.ok());
  const auto read = federated::UpdateReader::of(*again, layout);
  check(read.ok() && (*read)->norm() == (*update)->norm());
  check((*read)->info().metrics == (*update)->info().metrics);
  return 0;
}
