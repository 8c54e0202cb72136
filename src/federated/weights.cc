#include "federated/weights.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "federated/internal/convert.h"
#include "federated/internal/kernels.h"
#include "federated/internal/shown.h"
#include "federated/internal/update_names.h"

namespace varda::federated {
namespace {

std::string bytes_of(std::uint64_t number) {
  std::string out(sizeof number, '\0');
  for (std::size_t i = 0; i < sizeof number; ++i)
    out[i] = static_cast<char>(number >> (8 * i) & 0xff);
  return out;
}

/// A second tensor with one of these names would be ambiguous in an update.
Status check_names(const std::vector<tensor::Spec>& sorted) {
  std::set<std::string_view> names;
  for (const tensor::Spec& spec : sorted) {
    if (spec.name.empty()) return Error(Code::kInvalid, "a tensor has an empty name");
    if (!names.insert(spec.name).second)
      return Error(Code::kInvalid, "two tensors have the name " + shown(spec.name));
  }
  for (const tensor::Spec& spec : sorted) {
    for (const std::string_view suffix : kUpdateSuffixes)
      if (names.contains(spec.name + std::string(suffix)))
        return Error(Code::kInvalid, "an update needs the name " +
                                         shown(spec.name + std::string(suffix)) + " for itself");
    if (names.contains(std::string(kControlPrefix) + spec.name))
      return Error(Code::kInvalid, "an update needs the name " +
                                       shown(std::string(kControlPrefix) + spec.name) +
                                       " for itself");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Layout>> Layout::make(std::vector<tensor::Spec> tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  TRY_VOID(check_names(tensors));
  const std::shared_ptr<Layout> out(new Layout);
  codec::Sha256Stream digest;
  digest.update("varda-layout/1\n");
  for (tensor::Spec& spec : tensors) {
    if (!is_numeric(spec.dtype))
      return Error(Code::kInvalid, "tensor " + shown(spec.name) + " has the type " +
                                       std::string(tensor::to_string(spec.dtype)) +
                                       ", weights are numbers");
    TRY(const std::size_t size, tensor::elements(spec.shape).context("tensor " + shown(spec.name)));
    digest.update(bytes_of(spec.name.size()));
    digest.update(spec.name);
    digest.update(std::string(tensor::to_string(spec.dtype)) + tensor::to_string(spec.shape) +
                  "\n");
    // Sizes are at most 2^48, so that 2^16 tensors would be needed to overflow.
    if (out->size_ > (std::size_t{1} << 48))
      return Error(Code::kInvalid, "the tensors have more than 2^48 values");
    out->tensors_.push_back(
        {std::move(spec.name), spec.dtype, std::move(spec.shape), out->size_, size});
    out->size_ += size;
  }
  out->digest_ = digest.finish();
  return std::shared_ptr<const Layout>(out);
}

const LayoutTensor* Layout::find(std::string_view name) const {
  const auto it =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const LayoutTensor& a, std::string_view b) { return a.name < b; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

Weights::Weights(LayoutPointer layout) : layout_(std::move(layout)), values_(layout_->size()) {}

Weights::Weights(LayoutPointer layout, std::vector<float> values)
    : layout_(std::move(layout)), values_(std::move(values)) {
  CHECK(values_.size() == layout_->size());
}

Result<Weights> Weights::parse(std::string bytes) {
  TRY(const Safetensors file, Safetensors::of(std::move(bytes)));
  return from(file);
}

namespace {

/// Fills the values from a source of bytes for each tensor.
template <typename Bytes>
Result<Weights> filled(LayoutPointer layout, const Bytes& bytes) {
  Weights out(std::move(layout));
  for (const LayoutTensor& tensor : out.layout().tensors()) {
    const std::span<float> values = out.values().subspan(tensor.first, tensor.size);
    to_floats(tensor.dtype, bytes(tensor.name), values);
    if (!std::isfinite(kernels::max_magnitude(values.data(), values.size())))
      return Error(Code::kInvalid,
                   "tensor " + shown(tensor.name) + " has a value that is not finite");
  }
  return out;
}

}  // namespace

Result<Weights> Weights::from(const Safetensors& file) {
  std::vector<tensor::Spec> specs;
  for (const SafetensorsEntry& entry : file.header().entries())
    specs.push_back({entry.name, entry.dtype, entry.shape});
  TRY(LayoutPointer layout, Layout::make(std::move(specs)));
  return filled(std::move(layout),
                [&](const std::string& name) { return file.bytes(*file.header().find(name)); });
}

Result<Weights> Weights::of(std::span<const tensor::Named> tensors) {
  std::vector<tensor::Spec> specs;
  std::map<std::string_view, const tensor::Tensor*> by_name;
  for (const tensor::Named& tensor : tensors) {
    specs.push_back({tensor.name, tensor.tensor.dtype(), tensor.tensor.shape()});
    by_name[tensor.name] = &tensor.tensor;
  }
  TRY(LayoutPointer layout, Layout::make(std::move(specs)));
  return filled(std::move(layout),
                [&](const std::string& name) { return by_name.at(name)->bytes(); });
}

std::span<const float> Weights::tensor(std::string_view name) const {
  const LayoutTensor* const found = layout_->find(name);
  return found ? values().subspan(found->first, found->size) : std::span<const float>();
}

std::span<float> Weights::tensor(std::string_view name) {
  const LayoutTensor* const found = layout_->find(name);
  return found ? values().subspan(found->first, found->size) : std::span<float>();
}

Result<std::string> Weights::to_safetensors(const SafetensorsMetadata& metadata) const {
  // The order of write_safetensors(), without a copy of the tensors.
  std::vector<const LayoutTensor*> order;
  for (const LayoutTensor& tensor : layout_->tensors()) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return tensor::element_bytes(a->dtype) > tensor::element_bytes(b->dtype);
  });
  std::vector<SafetensorsSpec> specs;
  std::size_t total = 0;
  for (const LayoutTensor* tensor : order) {
    specs.push_back({tensor->name, tensor->dtype, tensor->shape});
    total += tensor->size * tensor::element_bytes(tensor->dtype);
  }
  TRY(std::string out, safetensors_header(specs, metadata));
  std::size_t at = out.size();
  out.resize(at + total);
  const auto bytes = std::as_writable_bytes(std::span(out.data(), out.size()));
  for (const LayoutTensor* tensor : order) {
    const std::size_t size = tensor->size * tensor::element_bytes(tensor->dtype);
    TRY_VOID(from_floats(tensor->dtype, values().subspan(tensor->first, tensor->size),
                         bytes.subspan(at, size))
                 .context("tensor " + shown(tensor->name)));
    at += size;
  }
  return out;
}

Result<tensor::Tensor> Weights::to_tensor(std::string_view name) const {
  const LayoutTensor* const found = layout_->find(name);
  if (found == nullptr) return Error(Code::kNotFound, "no tensor has the name " + shown(name));
  TRY(tensor::Tensor out, tensor::Tensor::allocate(found->dtype, found->shape));
  TRY_VOID(
      from_floats(found->dtype, values().subspan(found->first, found->size), out.mutable_bytes())
          .context("tensor " + shown(name)));
  return out;
}

Result<std::map<std::string, tensor::Tensor>> Weights::to_tensors() const {
  std::map<std::string, tensor::Tensor> out;
  for (const LayoutTensor& tensor : layout_->tensors()) {
    TRY(tensor::Tensor values, to_tensor(tensor.name));
    out.emplace(tensor.name, std::move(values));
  }
  return out;
}

}  // namespace varda::federated
