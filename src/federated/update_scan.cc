#include "federated/update_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "federated/internal/kernels.h"
#include "federated/internal/update_vector.h"
#include "federated/safetensors.h"

namespace varda::federated {
namespace {

/// Larger headers are rare, and would cost memory for each upload.
constexpr std::size_t kScannedHeaderBytesMax = 1 << 20;

}  // namespace

UpdateScan::UpdateScan(LayoutPointer layout, std::uint64_t file_bytes)
    : layout_(std::move(layout)), file_bytes_(file_bytes) {}

void UpdateScan::feed(std::string_view bytes) {
  while (state_ == State::kHeader && !bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), header_bytes_ - header_.size());
    header_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (header_.size() < header_bytes_) return;
    if (std::exchange(knows_length_, true)) {
      state_ = after_header();
      if (state_ == State::kValues) {
        values_left_ = layout_->size();
        block_.resize(std::min<std::size_t>(layout_->size(), kNormBlock));
      }
      std::string().swap(header_);
      break;
    }
    const auto length =
        SafetensorsHeader::bytes_of(header_, {.header_bytes_max = kScannedHeaderBytesMax});
    if (!length.ok() || *length <= header_.size()) {
      state_ = State::kUnknown;
      return;
    }
    header_bytes_ = *length;
  }
  while (state_ == State::kValues && !bytes.empty()) {
    if (values_left_ == 0) {
      state_ = State::kUnknown;  // more bytes than the header announced
      return;
    }
    const std::size_t wanted = sizeof(float) * std::min<std::uint64_t>(values_left_, block_.size());
    const std::size_t count = std::min(bytes.size(), wanted - block_bytes_);
    std::memcpy(reinterpret_cast<char*>(block_.data()) + block_bytes_, bytes.data(), count);
    block_bytes_ += count;
    bytes.remove_prefix(count);
    if (block_bytes_ == wanted) add_block();
  }
}

void UpdateScan::add_block() {
  const std::size_t count = block_bytes_ / sizeof(float);
  squares_ += kernels::sum_of_squares(block_.data(), count);
  values_left_ -= count;
  block_bytes_ = 0;
  if (!std::isfinite(squares_)) state_ = State::kUnknown;
}

UpdateScan::State UpdateScan::after_header() const {
  const auto header =
      SafetensorsHeader::parse(header_, file_bytes_, {.header_bytes_max = kScannedHeaderBytesMax});
  if (!header.ok() || header->entries().size() != layout_->tensors().size()) return State::kUnknown;
  for (std::size_t i = 0; i < header->entries().size(); ++i) {
    const SafetensorsEntry& entry = header->entries()[i];
    const LayoutTensor& tensor = layout_->tensors()[i];
    if (entry.name != tensor.name || entry.dtype != tensor::DType::kFp32 ||
        entry.shape != tensor.shape)
      return State::kUnknown;
  }
  return State::kValues;
}

std::optional<double> UpdateScan::norm() const {
  if (state_ != State::kValues || values_left_ > 0) return std::nullopt;
  return std::sqrt(squares_);
}

}  // namespace varda::federated
