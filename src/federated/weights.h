// Weights of a model as one vector of floats, tensors in the order of their names.
//
//   TRY(const Weights model, Weights::parse(safetensors_bytes));
//   model.layout().size();            // number of values of all tensors
//   model.tensor("conv1.weight");     // the values of one tensor
//   TRY(const std::string bytes, model.to_safetensors());
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"
#include "federated/safetensors.h"
#include "tensor/tensor.h"

namespace varda::federated {

/// A tensor inside the vector.
struct LayoutTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kFp32;  // in files; the vector has floats
  tensor::Shape shape;
  std::size_t first = 0;  // index of its first value in the vector
  std::size_t size = 0;   // number of values
  friend bool operator==(const LayoutTensor&, const LayoutTensor&) = default;
};

/// Names, types and shapes of a model's tensors, and their places in the vector. Immutable; share
/// it as LayoutPointer.
class Layout {
 public:
  /// Any order of `tensors`; the layout sorts by the bytes of the names. kInvalid: a name twice or
  /// empty, a name that an update needs for itself ("w#scale" beside "w", "control/w" beside "w"),
  /// a type that is no number, or a bad shape.
  static Result<std::shared_ptr<const Layout>> make(std::vector<tensor::Spec> tensors);

  const std::vector<LayoutTensor>& tensors() const { return tensors_; }
  /// Values of all tensors.
  std::size_t size() const { return size_; }
  /// Null: no such tensor.
  const LayoutTensor* find(std::string_view name) const;
  /// SHA-256 of names, types and shapes. Equal layouts have equal digests on all machines.
  const codec::Sha256& digest() const { return digest_; }
  friend bool operator==(const Layout& a, const Layout& b) { return a.digest_ == b.digest_; }

 private:
  Layout() = default;
  std::vector<LayoutTensor> tensors_;
  std::size_t size_ = 0;
  codec::Sha256 digest_;
};

using LayoutPointer = std::shared_ptr<const Layout>;

/// A layout and its values. Copies copy the values.
class Weights {
 public:
  /// Zeros.
  explicit Weights(LayoutPointer layout);
  /// CHECKs that the number of values fits.
  Weights(LayoutPointer layout, std::vector<float> values);

  /// From a file of weights. F64 and integers are rounded to floats: integers beyond 2^24 lose
  /// their low digits. kInvalid: broken file, or a value is not finite.
  static Result<Weights> parse(std::string bytes);
  static Result<Weights> from(const Safetensors& file);
  /// From tensors, such as those of an ONNX model or a Flower message.
  static Result<Weights> of(std::span<const tensor::Named> tensors);

  const Layout& layout() const { return *layout_; }
  const LayoutPointer& layout_pointer() const { return layout_; }
  std::span<const float> values() const { return values_; }
  std::span<float> values() { return values_; }
  /// The values of one tensor; empty if no tensor has this name.
  std::span<const float> tensor(std::string_view name) const;
  std::span<float> tensor(std::string_view name);

  /// A file with the types of the layout. Integers are rounded to the nearest, ties to even, and
  /// saturate. Equal weights and metadata give equal bytes. kInvalid: a value is not finite, or
  /// does not fit F16.
  Result<std::string> to_safetensors(const SafetensorsMetadata& metadata = {}) const;
  /// One tensor in the layout's type, as to_safetensors() writes it. kNotFound: no such tensor.
  Result<tensor::Tensor> to_tensor(std::string_view name) const;
  /// All tensors by name, for onnx::replace_weights().
  Result<std::map<std::string, tensor::Tensor>> to_tensors() const;

 private:
  LayoutPointer layout_;
  std::vector<float> values_;
};

}  // namespace varda::federated
