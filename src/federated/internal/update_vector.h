// The values of an update's tensors as one vector: dense, int8 and topk tensors, zeros between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "federated/safetensors.h"
#include "federated/update.h"
#include "federated/weights.h"

namespace varda::federated {

/// The tensors of a file for one tensor of the layout.
struct EncodedTensor {
  const SafetensorsEntry* values = nullptr;  // dense or int8
  const SafetensorsEntry* scales = nullptr;  // int8
  const SafetensorsEntry* index = nullptr;   // topk
  const SafetensorsEntry* kept = nullptr;    // topk
};

/// Views of a file, which outlives it. Concurrent reads are safe.
class UpdateVector {
 public:
  /// Adds the next tensor of the layout. Checks types and shapes.
  Result<void, Refusal> add(const LayoutTensor& tensor, const EncodedTensor& encoded,
                            const Safetensors& file);
  /// Reads everything: the L2 norm. Values are finite, indexes rise and are in range.
  Result<double, Refusal> check(std::size_t size) const;

  bool empty() const { return parts_.empty(); }
  void read(std::size_t first, std::span<float> out) const;
  std::span<const float> view(std::size_t first, std::span<float> scratch) const;
  void release(const Safetensors& file, std::size_t first, std::size_t count) const;

 private:
  enum class Form : std::uint8_t { kDense, kInt8, kTopK };
  struct Part {
    std::size_t first = 0, size = 0;  // in the vector
    Form form = Form::kDense;
    tensor::DType dtype = tensor::DType::kFp32;  // of `values`
    std::span<const std::byte> values;           // topk: those that are kept
    std::span<const std::byte> scales_or_indexes;
    std::string_view name;  // of the layout, for messages
  };
  std::size_t part_at(std::size_t first) const;
  static void read_part(const Part& part, std::size_t begin, std::span<float> out);
  Result<void, Refusal> check_sparse(const Part& part) const;

  std::vector<Part> parts_;  // rising, without overlap
};

}  // namespace varda::federated
