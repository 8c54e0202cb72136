// Finds the input of a policy among a model's outputs, by name, type and shape, and reads it.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tensor/half.h"
#include "tiers/policy.h"

namespace varda::tiers {

using tensor::DType;
using tensor::Named;
using tensor::Shape;
using tensor::Spec;
using tensor::Tensor;

namespace {

bool is_real(DType dtype) {
  return dtype == DType::kFp16 || dtype == DType::kBf16 || dtype == DType::kFp32 ||
         dtype == DType::kFp64;
}

/// [N,classes], or the same with trailing ones, as convolutions produce.
bool is_rows(const Shape& shape) {
  return shape.size() >= 2 &&
         std::all_of(shape.begin() + 2, shape.end(), [](std::int64_t size) { return size == 1; });
}

bool is_boxes(const Shape& shape) {
  return (shape.size() == 2 || shape.size() == 3) && shape.back() >= 5;
}

const Spec* find(std::span<const Spec> specs, std::string_view name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const Spec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

const Tensor* find(std::span<const Named> tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Named& named) { return named.name == name; });
  return found == tensors.end() ? nullptr : &found->tensor;
}

std::string outputs_text(std::span<const Spec> specs) {
  std::string out;
  for (const Spec& spec : specs) {
    out += (out.empty() ? "" : ", ") + spec.name + " " + std::string(to_string(spec.dtype)) + " " +
           tensor::to_string(spec.shape);
  }
  return out.empty() ? "the model has no outputs" : "the model has the outputs " + out;
}

double real_at(const Tensor& tensor, std::size_t index) {
  switch (tensor.dtype()) {
    case DType::kFp32:
      return tensor.values<float>()[index];
    case DType::kFp64:
      return tensor.values<double>()[index];
    case DType::kFp16:
      return tensor::float_of(tensor.values<std::uint16_t>()[index]);
    case DType::kBf16:
      return tensor::float_of_bf16(tensor.values<std::uint16_t>()[index]);
    default:
      return std::nan("");
  }
}

/// The number of boxes, from an integer output or a real one, as exported detectors have it. Empty:
/// not a valid number.
std::optional<std::size_t> count_at(const Tensor& tensor, std::size_t index) {
  double value = -1;
  if (is_real(tensor.dtype())) value = real_at(tensor, index);
  if (tensor.dtype() == DType::kInt64)
    value = static_cast<double>(tensor.values<std::int64_t>()[index]);
  if (tensor.dtype() == DType::kInt32) value = tensor.values<std::int32_t>()[index];
  if (!(value >= 0 && value <= 1e9) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::size_t>(value);
}

bool can_count(const Spec& spec) {
  const bool type =
      is_real(spec.dtype) || spec.dtype == DType::kInt64 || spec.dtype == DType::kInt32;
  return type && (spec.shape.size() == 1 || (spec.shape.size() == 2 && spec.shape[1] == 1));
}

}  // namespace

struct BoundPolicy::Finder {
  const Policy& policy;
  std::span<const Spec> outputs;

  Result<Place> place() const {
    switch (policy.row().input) {
      case PolicyInput::kNothing:
        return Place{};
      case PolicyInput::kClassProbabilities:
        return probabilities();
      case PolicyInput::kBoxScores:
        return scores();
      case PolicyInput::kTopLabel:
        return labels();
      case PolicyInput::kClassLogits:
        return logits();
    }
    return Place{};
  }

 private:
  Error missing(std::string_view what) const {
    const std::string reads =
        "the policy " + std::string(policy.row().name) + " reads " + std::string(what);
    const std::string has = outputs_text(outputs);
    if (!policy.output().empty())
      return Error(Code::kInvalid,
                   reads + "; the parameter output is " + policy.output() + ", and " + has);
    return Error(Code::kInvalid,
                 reads + ", and " + has + "; name one of them in the parameter output");
  }

  std::string counts() const {
    for (const char* name : {"counts", "num_detections"}) {
      if (const Spec* spec = find(outputs, name); spec != nullptr && can_count(*spec)) return name;
    }
    return {};
  }

  bool has_boxes() const {
    return find(outputs, "boxes") != nullptr || find(outputs, "detection_boxes") != nullptr;
  }

  std::optional<Place> probabilities_at(const Spec& spec) const {
    if (!is_real(spec.dtype)) return std::nullopt;
    if (is_rows(spec.shape))
      return Place{.values = spec.name, .counts = {}, .layout = Layout::kRows};
    // [-1] may be one number per sample, or one sample with any number of classes.
    if (spec.shape.size() == 1 && spec.shape[0] >= 0)
      return Place{.values = spec.name, .counts = {}, .layout = Layout::kSingle};
    return std::nullopt;
  }

  // True for scores of boxes or of the top labels: scores beside boxes belong to the boxes, scores
  // beside labels to the best few.
  bool scores_of_others(const Spec& spec) const {
    if (spec.name == "boxes" || spec.name == "detection_boxes") return true;
    if (spec.name != "scores" && spec.name != "detection_scores") return false;
    const Spec* ranked = find(outputs, "labels");
    return has_boxes() || (ranked != nullptr && ranked->dtype == DType::kBytes);
  }

  Result<Place> probabilities() const {
    constexpr std::string_view kWhat = "class probabilities (FP16, FP32 or FP64 [N,classes])";
    if (!policy.output().empty() || find(outputs, "probabilities") != nullptr) {
      const Spec* spec = find(outputs, policy.output().empty() ? "probabilities" : policy.output());
      const auto place = spec == nullptr ? std::nullopt : probabilities_at(*spec);
      return place ? Result<Place>(*place) : missing(kWhat);
    }
    std::optional<Place> only;
    for (const Spec& spec : outputs) {
      const auto place = probabilities_at(spec);
      if (!place || scores_of_others(spec)) continue;
      if (only) return missing(kWhat);
      only = place;
    }
    return only ? Result<Place>(*only) : missing(kWhat);
  }

  // Found by name only: probabilities have the same shape.
  Result<Place> logits() const {
    const Spec* spec = find(outputs, policy.output().empty() ? "logits" : policy.output());
    const auto place = spec == nullptr ? std::nullopt : probabilities_at(*spec);
    return place ? Result<Place>(*place)
                 : missing("the logits of classes (FP16, FP32 or FP64 [N,classes])");
  }

  std::optional<Place> scores_at(const Spec& spec) const {
    if (!is_real(spec.dtype)) return std::nullopt;
    const bool named_boxes =
        spec.name == "boxes" || spec.name == "detections" || spec.name == "detection_boxes";
    if (is_boxes(spec.shape) && (spec.shape.size() == 3 || named_boxes)) {
      const std::string counts_name = spec.shape.size() == 3 ? counts() : std::string();
      return Place{.values = spec.name, .counts = counts_name, .layout = Layout::kBoxes};
    }
    if (named_boxes) return std::nullopt;
    if (spec.shape.size() == 2)
      return Place{.values = spec.name, .counts = counts(), .layout = Layout::kRows};
    if (spec.shape.size() != 1) return std::nullopt;
    const std::string counts_name = counts();
    return Place{.values = spec.name,
                 .counts = counts_name,
                 .layout = counts_name.empty() ? Layout::kSingle : Layout::kFlat};
  }

  Result<Place> scores() const {
    constexpr std::string_view kWhat =
        "scores of boxes (FP16, FP32 or FP64: scores [boxes] or [N,boxes], or detections "
        "[N,boxes,5 or more] with the score behind "
        "four "
        "coordinates)";
    if (!policy.output().empty()) {
      const Spec* spec = find(outputs, policy.output());
      const auto place = spec == nullptr ? std::nullopt : scores_at(*spec);
      return place ? Result<Place>(*place) : missing(kWhat);
    }
    // Found by name only: class probabilities have the same shape as scores.
    for (const char* name :
         {"scores", "detection_scores", "boxes", "detections", "detection_boxes"}) {
      const Spec* spec = find(outputs, name);
      if (spec == nullptr) continue;
      if (const auto place = scores_at(*spec)) return *place;
    }
    return missing(kWhat);
  }

  std::optional<Place> labels_at(const Spec& spec) const {
    if (spec.dtype != DType::kBytes) return std::nullopt;
    if (spec.shape.size() == 2)
      return Place{.values = spec.name, .counts = counts(), .layout = Layout::kRows};
    if (spec.shape.size() != 1) return std::nullopt;
    const std::string counts_name = counts();
    if (!counts_name.empty())
      return Place{.values = spec.name, .counts = counts_name, .layout = Layout::kFlat};
    return Place{.values = spec.name, .counts = {}, .layout = Layout::kEach};
  }

  Result<Place> labels() const {
    constexpr std::string_view kWhat =
        "the best label (BYTES labels [N] or [N,k], best first) or class probabilities (FP16, FP32 "
        "or FP64 [N,classes])";
    if (!policy.output().empty()) {
      const Spec* spec = find(outputs, policy.output());
      std::optional<Place> place = spec == nullptr ? std::nullopt : labels_at(*spec);
      if (!place && spec != nullptr) place = probabilities_at(*spec);
      return place ? Result<Place>(*place) : missing(kWhat);
    }
    for (const char* name : {"labels", "label"}) {
      const Spec* spec = find(outputs, name);
      if (spec == nullptr) continue;
      if (const auto place = labels_at(*spec)) return *place;
    }
    if (auto place = probabilities(); place.ok()) return place;
    return missing(kWhat);
  }
};

/// Reads the samples of one answer.
class BoundPolicy::Reader {
 public:
  Reader(const BoundPolicy& bound, std::span<const Named> outputs, const Visit* visit = nullptr)
      : bound_(bound), outputs_(outputs), visit_(visit) {}

  Judgement read() {
    const Tensor* tensor = find(outputs_, bound_.place_.values);
    if (tensor == nullptr || !readable(tensor->dtype()) || !split(*tensor)) return kUnreadable;
    if (pitch_ == 0) {  // all samples are empty
      out_.samples = static_cast<std::uint32_t>(std::min<std::size_t>(samples_, 0xffffffff));
      return out_;
    }
    const bool texts = tensor->dtype() == DType::kBytes;
    const std::vector<std::string_view> strings =
        texts ? tensor->strings() : std::vector<std::string_view>();
    Sample sample{.values = {}, .label = {}, .precision = tensor->dtype()};
    std::vector<double> values;
    std::string number;
    std::size_t from = 0;
    for (std::size_t i = 0; i < samples_; ++i) {
      const std::size_t length = lengths_.empty() ? pitch_ / stride_ : lengths_[i];
      if (texts) {
        sample.label = length > 0 ? strings[from] : std::string_view();
      } else {
        values.resize(length);
        for (std::size_t k = 0; k < length; ++k)
          values[k] = real_at(*tensor, from + k * stride_ + column_);
        sample.values = values;
        if (bound_.policy_->row().input == PolicyInput::kTopLabel)
          sample.label = best(values, number);
      }
      const Verdict verdict = bound_.policy_->after(sample);
      take(verdict);
      if (visit_ != nullptr) (*visit_)(i, sample, verdict);
      from += bound_.place_.layout == Layout::kFlat ? length : pitch_;
    }
    return out_;
  }

  static constexpr Judgement kUnreadable{
      .hard = false, .samples = 1, .samples_hard = 0, .samples_invalid = 1};

 private:
  bool readable(DType dtype) const {
    return is_real(dtype) ||
           (dtype == DType::kBytes && bound_.policy_->row().input == PolicyInput::kTopLabel);
  }

  void take(Verdict verdict) {
    ++out_.samples;
    out_.samples_hard += verdict == Verdict::kHard ? 1 : 0;
    out_.samples_invalid += verdict == Verdict::kInvalid ? 1 : 0;
    out_.hard = out_.hard || verdict == Verdict::kHard;
  }

  // Name of the greatest value, the first if several are equal; the number if classes have no
  // names.
  std::string_view best(const std::vector<double>& values, std::string& number) const {
    if (values.empty()) return {};
    const auto index =
        static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
    if (index < bound_.labels_.size()) return bound_.labels_[index];
    number = std::to_string(index);
    return number;
  }

  /// Sets samples_, pitch_ and the rest; false: the tensor differs from the bound shape.
  bool split(const Tensor& tensor) {
    const Shape& shape = tensor.shape();
    const auto size = [&](std::size_t at) { return static_cast<std::size_t>(shape[at]); };
    switch (bound_.place_.layout) {
      case Layout::kRows:
        if (!is_rows(shape)) return false;
        samples_ = size(0);
        pitch_ = size(1);
        break;
      case Layout::kEach:
        if (shape.size() != 1) return false;
        samples_ = size(0);
        pitch_ = 1;
        break;
      case Layout::kSingle:
      case Layout::kFlat:
        if (shape.size() != 1) return false;
        samples_ = 1;
        pitch_ = size(0);
        break;
      case Layout::kBoxes:
        if (!is_boxes(shape)) return false;
        samples_ = shape.size() == 3 ? size(0) : 1;
        stride_ = size(shape.size() - 1);
        pitch_ = size(shape.size() - 2) * stride_;
        column_ = 4;
        break;
    }
    return bound_.place_.counts.empty() || read_counts();
  }

  bool read_counts() {
    const Tensor* counts = find(outputs_, bound_.place_.counts);
    if (counts == nullptr) return false;
    for (std::size_t i = 0; i < counts->size(); ++i) {
      const auto count = count_at(*counts, i);
      if (!count) return false;
      lengths_.push_back(*count);
    }
    if (bound_.place_.layout == Layout::kFlat) {
      samples_ = lengths_.size();
      return std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0}) == pitch_;
    }
    const auto fits = [&](std::size_t count) { return count <= pitch_ / stride_; };
    return lengths_.size() == samples_ && std::all_of(lengths_.begin(), lengths_.end(), fits);
  }

  const BoundPolicy& bound_;
  const std::span<const Named> outputs_;
  const Visit* const visit_;
  Judgement out_{};
  std::size_t samples_ = 0;
  std::size_t pitch_ = 0;   // elements from one sample to the next
  std::size_t stride_ = 1;  // from one value to the next
  std::size_t column_ = 0;
  std::vector<std::size_t> lengths_;  // valid values by sample; empty: all
};

Result<BoundPolicy> BoundPolicy::bind(std::shared_ptr<const Policy> policy,
                                      std::span<const Spec> outputs,
                                      std::vector<std::string> labels) {
  BoundPolicy bound;
  TRY(bound.place_, Finder{*policy, outputs}.place());
  bound.policy_ = std::move(policy);
  bound.labels_ = std::move(labels);
  for (const std::string& name : {bound.place_.values, bound.place_.counts}) {
    if (!name.empty()) bound.reads_.push_back(name);
  }
  return bound;
}

Judgement BoundPolicy::after(std::span<const Named> outputs) const {
  if (place_.values.empty()) return {};
  return Reader(*this, outputs).read();
}

Judgement BoundPolicy::each(std::span<const Named> outputs, const Visit& visit) const {
  if (place_.values.empty()) return {};
  return Reader(*this, outputs, &visit).read();
}

Judgement judge(const std::shared_ptr<const Policy>& policy, std::span<const Named> outputs,
                std::string* mismatch) {
  std::vector<Spec> specs;
  specs.reserve(outputs.size());
  for (const Named& output : outputs)
    specs.push_back({output.name, output.tensor.dtype(), output.tensor.shape()});
  const auto bound = BoundPolicy::bind(policy, specs);
  if (mismatch != nullptr) *mismatch = bound.ok() ? "" : bound.error().message();
  if (!bound.ok()) return {.hard = false, .samples = 1, .samples_hard = 0, .samples_invalid = 1};
  return bound->after(outputs);
}

}  // namespace varda::tiers
