// The values of an update's tensors as one vector: dense, int8 and topk tensors, zeros between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "federated/safetensors.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "os/positional_file.h"

namespace varda::federated {

/// The norm is a sum over blocks of this size, from the first value on.
inline constexpr std::size_t kNormBlock = 16'384;

/// The tensors of a file for one tensor of the layout.
struct EncodedTensor {
  const SafetensorsEntry* values = nullptr;  // dense or int8
  const SafetensorsEntry* scales = nullptr;  // int8
  const SafetensorsEntry* index = nullptr;   // topk
  const SafetensorsEntry* kept = nullptr;    // topk
};

/// Reads from a file. Concurrent reads are safe.
class UpdateVector {
 public:
  explicit UpdateVector(std::shared_ptr<const os::PositionalFile> file) : file_(std::move(file)) {}

  /// Adds the next tensor of the layout. Checks types and shapes.
  Result<void, Refusal> add(const LayoutTensor& tensor, const EncodedTensor& encoded);
  /// Reads everything: the L2 norm. Values are finite, indexes rise and are in range.
  Result<double, Refusal> check(std::size_t size) const;

  bool empty() const { return parts_.empty(); }
  Status read(std::size_t first, std::span<float> out) const;
  Result<std::span<const float>> view(std::size_t first, std::span<float> scratch) const;

 private:
  enum class Form : std::uint8_t { kDense, kInt8, kTopK };
  struct Part {
    std::size_t first = 0, size = 0;  // in the vector
    Form form = Form::kDense;
    tensor::DType dtype = tensor::DType::kFp32;  // of the values
    std::uint64_t values_at = 0;                 // in the file; topk: those that are kept
    std::uint64_t side_at = 0;                   // scales, or indexes
    std::size_t side_size = 0;                   // number of them
    std::string_view name;                       // of the layout, for messages
  };
  std::size_t part_at(std::size_t first) const;
  /// Bytes of the file: a view, or a copy in `scratch`.
  Result<const std::byte*> bytes(std::uint64_t at, std::size_t size,
                                 std::vector<std::byte>& scratch) const;
  Status read_part(const Part& part, std::size_t begin, std::span<float> out) const;
  Status read_dense(const Part& part, std::size_t begin, std::span<float> out) const;
  Status read_int8(const Part& part, std::size_t begin, std::span<float> out) const;
  Status read_topk(const Part& part, std::size_t begin, std::span<float> out) const;
  Result<std::size_t> lower_place(const Part& part, std::size_t begin) const;
  Result<void, Refusal> check_side(const Part& part) const;

  std::shared_ptr<const os::PositionalFile> file_;
  std::vector<Part> parts_;  // rising, without overlap
};

}  // namespace varda::federated
