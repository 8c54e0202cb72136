// UpdateScan: the norm of an update while its bytes arrive, so that the check of the complete file
// need not read the values again.
//
//   UpdateScan scan(layout, file_bytes);
//   scan.feed(bytes);                       // in the order of the file, in pieces of any size
//   limits.checked = …scan.norm()…;         // nothing: UpdateReader::open() reads the file
//
// The scan covers files with all tensors of the layout in F32, in the order of the layout, as
// encode_update() writes them without compression. UpdateReader still checks the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "federated/weights.h"

namespace varda::federated {

/// Not thread-safe. Needs 64 KiB, and the header's bytes while they arrive.
class UpdateScan {
 public:
  UpdateScan(LayoutPointer layout, std::uint64_t file_bytes);
  void feed(std::string_view bytes);
  /// The norm as UpdateReader computes it, if the file is complete and all values are finite.
  std::optional<double> norm() const;

 private:
  enum class State : std::uint8_t { kHeader, kValues, kUnknown };
  /// The state after the header.
  State after_header() const;
  void add_block();

  const LayoutPointer layout_;
  const std::uint64_t file_bytes_;
  State state_ = State::kHeader;
  std::size_t header_bytes_ = 8;  // until the length is known
  bool knows_length_ = false;
  std::string header_;
  std::vector<float> block_;
  std::size_t block_bytes_ = 0;  // filled
  std::uint64_t values_left_ = 0;
  double squares_ = 0;
};

}  // namespace varda::federated
