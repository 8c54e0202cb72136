#include "samples/internal/base.h"

namespace varda::samples::internal {

Result<Batch> Readable::read_until(const Context& ctx, std::span<const std::size_t> indices,
                                   const Augment& augment, std::uint64_t seed,
                                   tensor::Pool& memory) const {
  if (augment.any() && !has_pictures())
    return Error(Code::kInvalid, "augment changes images, but the samples are numbers; remove it");
  Batch out;
  TRY(out.input, allocate(indices.size(), memory));
  const std::unique_ptr<SampleReader> samples = reader();
  for (std::size_t row = 0; row < indices.size(); ++row) {
    TRY_VOID(ctx.check());
    const std::size_t index = indices[row];
    if (index >= size())
      return Error(Code::kInvalid, "there is no sample " + std::to_string(index) + " among " +
                                       std::to_string(size()));
    auto done = samples->read({.index = index, .row = row, .augment = augment, .seed = seed}, out);
    if (!done.ok()) return std::move(done).error().context(place(index));
  }
  out.indices.assign(indices.begin(), indices.end());
  return out;
}

}  // namespace varda::samples::internal
