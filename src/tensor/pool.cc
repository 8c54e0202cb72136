#include "tensor/pool.h"

#include <algorithm>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tensor/internal/memory.h"

namespace varda::tensor {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

/// Large memory gets huge pages where the system has some: a page fault for 2 MiB instead of one
/// for 4 KiB. The part of a huge page at the end stays in small pages, so no memory is wasted.
Result<internal::Memory> pool_memory(std::size_t size) {
  if (size < 2 * kHugePageBytes) return internal::allocate_memory(size);
  TRY(internal::Memory out, internal::allocate_memory(size, kHugePageBytes));
  (void)::madvise(out.get(), size / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return out;
}

}  // namespace

struct Pool::Spare {
  struct Block {
    internal::Memory memory;
    std::size_t size = 0;
  };

  explicit Spare(std::size_t most) : max(most) {}

  /// The smallest block of `size` bytes or more; without one, a block for the caller to free.
  Block take(std::size_t size) {
    const MutexLock lock(mutex);
    if (blocks.empty()) return {};
    const auto fits = [&](const Block& block) { return block.size >= size; };
    const auto best =
        std::min_element(blocks.begin(), blocks.end(), [&](const Block& a, const Block& b) {
          return fits(a) != fits(b) ? fits(a) : a.size < b.size;
        });
    Block out = std::move(*best);
    blocks.erase(best);
    return out;
  }

  void put(Block block) {
    const MutexLock lock(mutex);
    if (blocks.size() < max) blocks.push_back(std::move(block));
  }

  const std::size_t max;
  Mutex mutex;
  std::vector<Block> blocks GUARDED_BY(mutex);
};

Pool::Pool(std::size_t spare_max) : spare_(std::make_shared<Spare>(spare_max)) {}

Pool::~Pool() = default;

Result<Tensor> Pool::allocate(DType dtype, Shape shape) {
  TRY(const std::size_t size, Tensor::bytes_of(dtype, shape));
  Spare::Block block = spare_->take(size);
  if (block.memory == nullptr || block.size < size) {
    block.memory.reset();  // before the new memory, so that both never exist together
    TRY(block.memory, pool_memory(size));
    block.size = size;
  }
  std::byte* const data = block.memory.release();
  std::shared_ptr<std::byte> owner(
      data, [spare = std::weak_ptr<Spare>(spare_), block_size = block.size](std::byte* p) {
        Spare::Block returned{internal::Memory(p), block_size};
        if (const auto pool = spare.lock()) pool->put(std::move(returned));
      });
  return Tensor::in(std::move(owner), dtype, std::move(shape));
}

}  // namespace varda::tensor
