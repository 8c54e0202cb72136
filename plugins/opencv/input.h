// An input of a network, as the model's files declare it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace varda_opencv {

struct Input {
  std::string name;
  bool fp32 = true;                // the only type that the engine takes
  std::vector<std::int64_t> dims;  // -1: open
  bool known_rank = false;         // false: dims is empty, and any rank is possible
};

/// Result of reading a model's files.
struct Inputs {
  std::vector<Input> all;
  std::string problem;  // why the files cannot be read; "" if they can
};

/// Limit for the elements of one sample and of one weight. Larger sizes are taken for damage,
/// because OpenCV would allocate them before it reads a value.
inline constexpr std::int64_t kElementsMax = std::int64_t{1} << 28;

/// The product of the sizes, or -1 if a size is negative or the product exceeds kElementsMax.
inline std::int64_t elements_of(const std::vector<std::int64_t>& dims) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : dims) {
    if (size < 0 || size > kElementsMax) return -1;
    if (size == 0) {
      empty = true;
      continue;
    }
    product *= size;
    if (product > kElementsMax) return -1;
  }
  return empty ? 0 : product;
}

}  // namespace varda_opencv
