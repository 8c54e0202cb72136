#include "samples/internal/input.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "samples/internal/augment.h"
#include "tensor/visit.h"

namespace varda::samples::internal {
namespace {

using tensor::DType;

tensor::Shape without_ones(std::span<const std::int64_t> shape) {
  tensor::Shape out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out),
               [](std::int64_t size) { return size != 1; });
  return out;
}

/// The shape of one sample in the model's input. Nothing: the sample does not fit.
std::optional<tensor::Shape> fitted(std::span<const std::int64_t> inner,
                                    const tensor::Shape& sample, std::int64_t values) {
  tensor::Shape out(inner.begin(), inner.end());
  const tensor::Shape squeezed = without_ones(sample), wanted = without_ones(inner);
  if (squeezed.size() == wanted.size() && tensor::fits(squeezed, wanted)) {
    std::size_t next = 0;
    for (std::int64_t& size : out) {
      if (size != 1) size = squeezed[next++];
    }
    return out;
  }
  if (squeezed.size() > 1 && wanted.size() > 1) return std::nullopt;
  std::int64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& size : out) {
    if (size < 0) {
      if (open != nullptr) return std::nullopt;
      open = &size;
    } else {
      if (size == 0 || known > values / size) return std::nullopt;
      known *= size;
    }
  }
  if (open != nullptr) {
    if (values % known != 0) return std::nullopt;
    *open = values / known;
  } else if (known != values) {
    return std::nullopt;
  }
  return out;
}

Status check_batch(std::size_t count, std::size_t sample_bytes) {
  if (count <= kBatchBytesMax / std::max<std::size_t>(sample_bytes, 1)) return {};
  return Error(Code::kExhausted, "a batch of " + std::to_string(count) + " samples has more than " +
                                     std::to_string(kBatchBytesMax >> 20) +
                                     " MiB; set a smaller batchSize");
}

}  // namespace

std::string input_text(const tensor::Spec& input) {
  return "the model's input \"" + input.name + "\" of shape " + tensor::to_string(input.shape);
}

Result<NumberInput> NumberInput::bind(const tensor::Spec& input, const tensor::Shape& sample) {
  switch (input.dtype) {
    case DType::kFp32:
    case DType::kFp64:
    case DType::kUint8:
    case DType::kInt32:
    case DType::kInt64:
      break;
    default:
      return Error(Code::kUnsupported, input_text(input) + " is " +
                                           std::string(to_string(input.dtype)) +
                                           "; training fills FP32, FP64, UINT8, INT32 and INT64");
  }
  NumberInput out;
  out.input_ = input;
  TRY(out.values_, tensor::elements(sample));
  std::optional<tensor::Shape> shape;
  if (!input.shape.empty() && out.values_ > 0)
    shape =
        fitted(std::span(input.shape).subspan(1), sample, static_cast<std::int64_t>(out.values_));
  if (!shape)
    return Error(Code::kInvalid, "a sample of shape " + tensor::to_string(sample) +
                                     " does not fit " + input_text(input));
  out.shape_ = std::move(*shape);
  return out;
}

Result<tensor::Tensor> NumberInput::allocate(std::size_t count, tensor::Pool& memory) const {
  TRY_VOID(check_batch(count, values_ * tensor::element_bytes(input_.dtype)));
  tensor::Shape shape = {static_cast<std::int64_t>(count)};
  shape.insert(shape.end(), shape_.begin(), shape_.end());
  return memory.allocate(input_.dtype, std::move(shape));
}

Status NumberInput::check(double value) const {
  bool fits = std::isfinite(value);
  switch (input_.dtype) {
    case DType::kFp32:
      fits = std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
      break;
    case DType::kUint8:
      fits = value >= 0 && value <= 255 && value == std::trunc(value);
      break;
    case DType::kInt32:
      fits = std::abs(value) < 2147483648.0 && value == std::trunc(value);
      break;
    case DType::kInt64:  // beyond 2^53, double skips integers
      fits = std::abs(value) <= 9007199254740992.0 && value == std::trunc(value);
      break;
    default:
      break;
  }
  if (fits) return {};
  return Error(Code::kInvalid, std::to_string(value) + " is no value of type " +
                                   std::string(to_string(input_.dtype)) + ", which " +
                                   input_text(input_) + " takes");
}

void NumberInput::write(std::span<const double> values, tensor::Tensor& out,
                        std::size_t row) const {
  const auto fill = [&](auto to) {
    std::transform(
        values.begin(), values.end(), to.begin() + static_cast<std::ptrdiff_t>(row * values_),
        [](double value) { return static_cast<typename decltype(to)::value_type>(value); });
  };
  switch (input_.dtype) {
    case DType::kFp64:
      return fill(out.mutable_values<double>());
    case DType::kUint8:
      return fill(out.mutable_values<std::uint8_t>());
    case DType::kInt32:
      return fill(out.mutable_values<std::int32_t>());
    case DType::kInt64:
      return fill(out.mutable_values<std::int64_t>());
    default:
      return fill(out.mutable_values<float>());
  }
}

namespace {

/// The step of a model that declares none: channels by the input's shape, values 0 to 255.
transform::ImageStep default_step(const tensor::Shape& shape,
                                  std::optional<PictureInput::Size> own) {
  transform::ImageStep step;
  const std::size_t rank = shape.size();
  bool grey = rank == 3 || (rank == 4 && shape[1] != 3 && shape[3] != 3);
  if (own) {
    step.width = static_cast<std::int64_t>(own->width);
    step.height = static_cast<std::int64_t>(own->height);
    if (rank == 2) grey = shape[1] != 3 * *step.width * *step.height;
  }
  if (grey) step.channels = transform::Channels::kGrey;
  return step;
}

}  // namespace

Result<PictureInput> PictureInput::bind(const transform::Declaration& preprocess,
                                        const tensor::Spec& input, std::optional<Size> own) {
  tensor::Spec target = input;
  if (target.shape.empty()) return Error(Code::kInvalid, input_text(input) + " takes no images");
  target.shape[0] = -1;  // a batch has any size here
  const bool declared = preprocess.image.has_value();
  transform::ImageStep step = declared ? *preprocess.image : default_step(target.shape, own);
  step.input.clear();
  PictureInput out;
  auto image = transform::ImageInput::bind(step, {&target, 1}, {});
  if (!image.ok() && !declared && own)
    return Error(Code::kInvalid, "images of shape [" + std::to_string(own->height) + "," +
                                     std::to_string(own->width) + "] do not fit " +
                                     input_text(input) +
                                     "; declare preprocess.image in model.yaml to resize them");
  if (!image.ok()) return std::move(image).error();
  if (image->layout()[0] != 'N')
    return Error(Code::kInvalid, input_text(input) +
                                     " takes one image at a time; export the model with a batch "
                                     "dimension");
  out.image_ = std::move(*image);
  return out;
}

Result<tensor::Tensor> PictureInput::allocate(std::size_t count, tensor::Pool& memory) const {
  const transform::ImageInput& image = *image_;
  TRY_VOID(check_batch(count, image.width() * image.height() * image.channels() *
                                  tensor::element_bytes(image.target().dtype)));
  return memory.allocate(image.target().dtype, image.shape(count));
}

void PictureInput::write(codec::Image image, const Augment& augment, std::uint64_t seed,
                         std::size_t index, tensor::Tensor& out, std::size_t row,
                         transform::Pixels& memory) const {
  if (!augment.any()) {
    image_->write(image, out, row);
    memory.bytes = std::move(image.pixels);
    return;
  }
  memory = image_->pixels(std::move(image), std::move(memory));
  change(memory, image_->width(), image_->height(), image_->channels(), augment, seed, index);
  image_->place(memory, out, row);
}

}  // namespace varda::samples::internal
