// Models and updates for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "federated/update.h"
#include "federated/weights.h"

namespace varda::federated::testing {

/// One FP32 tensor "w" with `size` values.
inline LayoutPointer flat_layout(std::size_t size) {
  return Layout::make({{"w", tensor::DType::kFp32, {static_cast<std::int64_t>(size)}}}).value();
}

/// Several tensors of odd sizes with `size` values together.
inline LayoutPointer mixed_layout(std::size_t size) {
  std::vector<tensor::Spec> specs;
  for (std::size_t i = 0, piece = 1; size > 0; ++i, piece = piece * 3 + 1) {
    const std::size_t count = std::min(piece, size);
    specs.push_back(
        {"t" + std::to_string(i), tensor::DType::kFp32, {static_cast<std::int64_t>(count)}});
    size -= count;
  }
  return Layout::make(std::move(specs)).value();
}

/// Values in [-scale, scale).
inline std::vector<float> random_values(std::size_t size, std::uint64_t seed, double scale = 1) {
  const std::unique_ptr<Rng> rng = seeded_rng(seed);
  std::vector<float> out(size);
  for (float& value : out) value = static_cast<float>(scale * (2 * rng->unit() - 1));
  return out;
}

inline std::unique_ptr<UpdateReader> update_of(const LayoutPointer& layout,
                                               std::span<const float> delta,
                                               const EncodeOptions& options = {},
                                               std::uint64_t samples = 1) {
  UpdateInfo info;
  info.task = "1-train";
  info.samples = samples;
  auto bytes = encode_update(info, *layout, delta, options);
  CHECK(bytes.ok());
  auto reader = UpdateReader::of(std::move(bytes).value(), layout);
  CHECK(reader.ok());
  return std::move(reader).value();
}

}  // namespace varda::federated::testing
