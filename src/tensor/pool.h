// Memory that tensors of similar size use in turn.
//
//   Pool pool(2);
//   for (;;) {
//     TRY(Tensor batch, pool.allocate(DType::kFp32, {32, 3, 224, 224}));
//     ...
//   }
//
// Fresh memory costs a page fault for each 4 KiB. For a batch of images these faults take longer
// than decoding.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "tensor/tensor.h"

namespace varda::tensor {

/// Thread-safe. Tensors may outlive the pool.
class Pool {
 public:
  /// Keeps the memory of at most `spare_max` tensors that have no copies left.
  explicit Pool(std::size_t spare_max);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// The values are undefined: the caller writes all of them. The memory returns to the pool with
  /// the last copy of the tensor. Errors: as Tensor::allocate().
  Result<Tensor> allocate(DType dtype, Shape shape);

 private:
  struct Spare;
  const std::shared_ptr<Spare> spare_;
};

}  // namespace varda::tensor
