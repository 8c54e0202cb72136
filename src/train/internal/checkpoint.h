// A checkpoint as bytes: names and values of tensors, and a digest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::train {

/// Layout, little-endian: `VARDATR1`, steps (8 bytes), then two lists: weights, optimizer state.
/// A list is its length (8) and the items. An item is the length of its name (8), the name, the
/// number of values (8), and the values as FP32. The SHA-256 of all that ends the file.
struct Checkpoint {
  struct Item {
    std::string name;
    std::vector<float> values;
  };
  std::uint64_t steps = 0;
  std::vector<Item> weights, state;

  std::string encode() const;
  /// kCorrupt: not a checkpoint, or damaged.
  static Result<Checkpoint> decode(std::string_view bytes);
};

}  // namespace varda::train
