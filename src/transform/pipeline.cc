#include "transform/pipeline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "codec/image.h"
#include "transform/image_input.h"
#include "transform/internal/boxes.h"
#include "transform/internal/scores.h"

namespace varda::transform {
namespace {

using internal::Floats;
using internal::ScoreShape;
using tensor::DType;
using tensor::Named;
using tensor::Spec;
using tensor::Tensor;

constexpr std::string_view kLabels = "labels";
constexpr std::string_view kScores = "scores";
constexpr std::string_view kBoxes = "boxes";
constexpr std::string_view kCounts = "counts";

// Origin of an output: a step's result, or the model.
struct Source {
  enum class Kind {
    kModel,
    kProbabilities,
    kTopLabels,
    kTopScores,
    kBoxes,
    kBoxScores,
    kBoxLabels,
    kCounts
  };
  Kind kind = Kind::kModel;
  std::size_t index = 0;  // for kModel
};

struct Output {
  Spec spec;  // under its public name
  Source source;
};

std::string names(const std::vector<Spec>& specs) {
  return join(specs, ", ", [](const auto& spec) { return spec.name; });
}

std::string quoted(const Spec& spec) {
  return "output \"" + spec.name + "\" of shape " + tensor::to_string(spec.shape);
}

// Input of a step: an output of the model, or softmax's result.
struct Reads {
  bool probabilities = false;
  std::size_t index = 0;  // of the model's output, unless `probabilities`
};

bool fits_size(std::int64_t a, std::int64_t b) { return a == -1 || b == -1 || a == b; }

}  // namespace

struct Pipeline::Compiled {
  Declaration declaration;
  std::vector<std::string> labels;
  std::vector<Spec> model_outputs;
  std::optional<ImageInput> image;
  std::vector<Spec> inputs;
  std::vector<Output> all;  // in the order of available()
  std::vector<Spec> outputs;
  std::vector<Spec> available;
  Reads softmax, top_k, boxes, scores;

  // Compile time.
  Result<std::size_t> output_of_model(const std::string& name, const std::string& setting) const;
  Result<Reads> reads(const std::string& name, const std::string& setting) const;
  Result<std::size_t> only_scores(const std::string& setting) const;
  const Spec& spec_of(const Reads& what) const {
    return what.probabilities ? all.front().spec : model_outputs[what.index];
  }
  Status check_floating(const Spec& spec, const std::string& setting) const;
  Status check_labels(const Spec& spec, std::int64_t classes, const std::string& setting) const;
  Status bind_softmax();
  Status bind_top_k();
  Status bind_nms();
  void list_outputs();

  // Run time.
  const Output* find(std::string_view name) const;
  Result<Output> resolve(std::string_view name) const;
};

namespace {

// Builds one response; results that several outputs share are computed once.
class Answer {
 public:
  Answer(const Declaration& declaration, const std::vector<std::string>& labels,
         const std::vector<Spec>& model_outputs, const Prepared& prepared,
         const std::vector<Named>& raw, std::pair<std::size_t, std::size_t> model_size)
      : declaration_(declaration),
        labels_(labels),
        model_outputs_(model_outputs),
        prepared_(prepared),
        raw_(raw),
        model_size_(model_size) {}

  Result<Tensor> model_output(std::size_t index) const {
    const std::string& name = model_outputs_[index].name;
    for (const Named& one : raw_) {
      if (one.name == name) return one.tensor;
    }
    return Error(Code::kInternal, "the engine did not give output \"" + name + "\"");
  }

  Result<Tensor> probabilities(std::size_t logits) {
    if (probabilities_) return *probabilities_;
    TRY(const Tensor in, model_output(logits));
    TRY(const ScoreShape shape, ScoreShape::of(in.shape()));
    if (shape.classes == 0) return empty(model_outputs_[logits], in);
    TRY(const Floats values, Floats::of(in));
    TRY(Tensor out, Tensor::allocate(DType::kFp32, in.shape()));
    internal::softmax(values.values(), static_cast<std::size_t>(shape.classes),
                      out.mutable_values<float>());
    probabilities_ = std::move(out);
    return *probabilities_;
  }

  struct Ranked {
    Tensor labels, scores;
  };
  Result<Ranked> ranked(const Tensor& in, const Spec& spec) {
    if (ranked_) return *ranked_;
    TRY(ScoreShape shape, ScoreShape::of(in.shape()));
    if (shape.classes == 0) return empty(spec, in);
    TRY(const Floats values, Floats::of(in));
    const std::int64_t k = std::min(declaration_.top_k->k, shape.classes);
    tensor::Shape out_shape = std::move(shape.rows);
    out_shape.push_back(k);
    TRY(Tensor scores, Tensor::allocate(DType::kFp32, out_shape));
    const auto to = scores.mutable_values<float>();
    const auto classes = static_cast<std::size_t>(shape.classes);
    std::vector<std::string> best;
    best.reserve(to.size());
    for (std::size_t at = 0; at < values.values().size(); at += classes) {
      const auto row = values.values().subspan(at, classes);
      for (const std::size_t index : internal::top_k(row, static_cast<std::size_t>(k))) {
        to[best.size()] = row[index];
        best.push_back(internal::label_of(index, labels_));
      }
    }
    TRY(Tensor labels, Tensor::of_strings(out_shape, best));
    ranked_ = Ranked{std::move(labels), std::move(scores)};
    return *ranked_;
  }

  struct Boxes {
    Tensor boxes, scores, labels, counts;
  };
  Result<Boxes> boxes(const Tensor& boxes, const Tensor& scores) {
    if (boxes_) return *boxes_;
    TRY(const Floats corners, Floats::of(boxes));
    TRY(const Floats values, Floats::of(scores));
    const tensor::Shape& shape = boxes.shape();
    if ((shape.size() != 2 && shape.size() != 3) || shape.back() != 4)
      return mismatch(boxes, scores);
    const std::size_t images = shape.size() == 3 ? static_cast<std::size_t>(shape[0]) : 1;
    const auto count = static_cast<std::size_t>(shape[shape.size() - 2]);
    // The scores have the same leading dimensions, and then either classes or nothing.
    const tensor::Shape rows(shape.begin(), shape.end() - 1);
    const bool one_class = scores.shape() == rows;
    if (!one_class && (scores.shape().size() != shape.size() ||
                       !std::equal(rows.begin(), rows.end(), scores.shape().begin())))
      return mismatch(boxes, scores);
    const std::size_t classes = one_class ? 1 : static_cast<std::size_t>(scores.shape().back());
    if (!prepared_.images.empty() && prepared_.images.size() != images) {
      return Error(Code::kInvalid, "postprocess.nms: the model gave boxes of " +
                                       std::to_string(images) + " images for " +
                                       std::to_string(prepared_.images.size()));
    }
    std::vector<internal::Box> found;
    std::vector<std::int64_t> counts;
    for (std::size_t i = 0; i < images; ++i) {
      std::vector<internal::Box> one = internal::suppress(
          *declaration_.nms, corners.values().subspan(i * count * 4, count * 4),
          values.values().subspan(i * count * classes, count * classes), classes);
      counts.push_back(static_cast<std::int64_t>(one.size()));
      if (!prepared_.images.empty()) to_image(prepared_.images[i], one);
      found.insert(found.end(), one.begin(), one.end());
    }
    return tensors(found, counts);
  }

 private:
  static Error empty(const Spec& spec, const Tensor& in) {
    return Error(Code::kInvalid, "the model gave no classes: " + quoted(spec) + " is " +
                                     tensor::to_string(in.shape()));
  }
  static Error mismatch(const Tensor& boxes, const Tensor& scores) {
    return Error(Code::kInvalid,
                 "postprocess.nms takes boxes [n,4] with scores [n,classes] or [n], all with or "
                 "without a batch dimension; "
                 "the model gave " +
                     tensor::to_string(boxes.shape()) + " and " +
                     tensor::to_string(scores.shape()));
  }

  // Converts from model units to pixels of the original image, clipped to it.
  void to_image(const ImageSize& image, std::vector<internal::Box>& found) const {
    const auto width = static_cast<float>(image.width), height = static_cast<float>(image.height);
    const bool shares = declaration_.nms->normalized;
    const float x = shares ? width : width / static_cast<float>(model_size_.first);
    const float y = shares ? height : height / static_cast<float>(model_size_.second);
    for (internal::Box& box : found) {
      auto& c = box.corners;
      c = {std::clamp(c[0] * x, 0.0f, width), std::clamp(c[1] * y, 0.0f, height),
           std::clamp(c[2] * x, 0.0f, width), std::clamp(c[3] * y, 0.0f, height)};
    }
  }

  Result<Boxes> tensors(const std::vector<internal::Box>& found,
                        const std::vector<std::int64_t>& counts) {
    const auto n = static_cast<std::int64_t>(found.size());
    Boxes out;
    TRY(out.boxes, Tensor::allocate(DType::kFp32, {n, 4}));
    TRY(out.scores, Tensor::allocate(DType::kFp32, {n}));
    std::vector<std::string> labels;
    for (std::size_t i = 0; i < found.size(); ++i) {
      std::copy(found[i].corners.begin(), found[i].corners.end(),
                out.boxes.mutable_values<float>().begin() + static_cast<std::ptrdiff_t>(4 * i));
      out.scores.mutable_values<float>()[i] = found[i].score;
      labels.push_back(internal::label_of(found[i].label, labels_));
    }
    TRY(out.labels, Tensor::of_strings({n}, labels));
    TRY(out.counts, Tensor::of<std::int64_t>(DType::kInt64,
                                             {static_cast<std::int64_t>(counts.size())}, counts));
    boxes_ = std::move(out);
    return *boxes_;
  }

  const Declaration& declaration_;
  const std::vector<std::string>& labels_;
  const std::vector<Spec>& model_outputs_;
  const Prepared& prepared_;
  const std::vector<Named>& raw_;
  const std::pair<std::size_t, std::size_t> model_size_;  // width and height of the model input
  std::optional<Tensor> probabilities_;
  std::optional<Ranked> ranked_;
  std::optional<Boxes> boxes_;
};

}  // namespace

Result<std::size_t> Pipeline::Compiled::output_of_model(const std::string& name,
                                                        const std::string& setting) const {
  for (std::size_t i = 0; i < model_outputs.size(); ++i) {
    if (model_outputs[i].name == name) return i;
  }
  return Error(Code::kInvalid, setting + ": the model has no output \"" + name + "\"; it has " +
                                   names(model_outputs));
}

Result<Reads> Pipeline::Compiled::reads(const std::string& name, const std::string& setting) const {
  if (declaration.softmax && name == declaration.softmax->output) return Reads{true, 0};
  TRY(const std::size_t index, output_of_model(name, setting));
  return Reads{false, index};
}

// The only output that can hold class scores.
Result<std::size_t> Pipeline::Compiled::only_scores(const std::string& setting) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < model_outputs.size(); ++i) {
    if (!internal::is_floating(model_outputs[i].dtype) || model_outputs[i].shape.empty()) continue;
    if (found)
      return Error(Code::kInvalid,
                   setting + " must name the output to read: " + names(model_outputs));
    found = i;
  }
  if (!found)
    return Error(Code::kInvalid,
                 setting + ": the model has no output of scores; it has " + names(model_outputs));
  return *found;
}

Status Pipeline::Compiled::check_floating(const Spec& spec, const std::string& setting) const {
  if (internal::is_floating(spec.dtype)) return {};
  return Error(Code::kInvalid, setting + ": " + quoted(spec) + " is " +
                                   std::string(to_string(spec.dtype)) + ", not a floating type");
}

Status Pipeline::Compiled::check_labels(const Spec& spec, std::int64_t classes,
                                        const std::string& setting) const {
  if (labels.empty() || classes == -1 || static_cast<std::int64_t>(labels.size()) == classes)
    return {};
  return Error(Code::kInvalid, setting + ": there are " + std::to_string(labels.size()) +
                                   " labels, but " + quoted(spec) + " has " +
                                   std::to_string(classes) + " classes");
}

Status Pipeline::Compiled::bind_softmax() {
  const std::string setting = "postprocess.softmax.input";
  const SoftmaxStep& step = *declaration.softmax;
  softmax.probabilities = false;
  if (step.input.empty()) {
    TRY(softmax.index, only_scores(setting));
  } else {
    TRY(softmax.index, output_of_model(step.input, setting));
  }
  const Spec& in = model_outputs[softmax.index];
  TRY_VOID(check_floating(in, setting));
  auto shape = ScoreShape::of(in.shape);
  if (!shape.ok()) return std::move(shape).error().context(setting);
  if (step.output.rfind(kRawPrefix, 0) == 0)
    return Error(Code::kInvalid,
                 "postprocess.softmax.output must not begin with " + std::string(kRawPrefix));
  const bool taken = (declaration.top_k && (step.output == kLabels || step.output == kScores)) ||
                     (declaration.nms && (step.output == kLabels || step.output == kScores ||
                                          step.output == kBoxes || step.output == kCounts));
  if (taken)
    return Error(Code::kInvalid,
                 "postprocess.softmax.output: another step's result is called " + step.output);
  all.push_back({{step.output, DType::kFp32, in.shape}, {Source::Kind::kProbabilities, 0}});
  return {};
}

Status Pipeline::Compiled::bind_top_k() {
  const std::string setting = "postprocess.top_k.input";
  const TopKStep& step = *declaration.top_k;
  if (!step.input.empty()) {
    TRY(top_k, reads(step.input, setting));
  } else if (declaration.softmax) {
    top_k = {true, 0};
  } else {
    TRY(top_k.index, only_scores(setting));
  }
  const Spec in = spec_of(top_k);
  TRY_VOID(check_floating(in, setting));
  auto shape = ScoreShape::of(in.shape);
  if (!shape.ok()) return std::move(shape).error().context(setting);
  TRY_VOID(check_labels(in, shape->classes, "postprocess.top_k"));
  if (shape->classes != -1 && step.k > shape->classes) {
    return Error(Code::kInvalid, "postprocess.top_k.k is " + std::to_string(step.k) + ", but " +
                                     quoted(in) + " has " + std::to_string(shape->classes) +
                                     " classes");
  }
  tensor::Shape out = shape->rows;
  out.push_back(shape->classes == -1 ? -1 : step.k);
  all.push_back({{std::string(kLabels), DType::kBytes, out}, {Source::Kind::kTopLabels, 0}});
  all.push_back({{std::string(kScores), DType::kFp32, out}, {Source::Kind::kTopScores, 0}});
  return {};
}

Status Pipeline::Compiled::bind_nms() {
  const NmsStep& step = *declaration.nms;
  boxes.probabilities = false;
  TRY(boxes.index, output_of_model(step.boxes, "postprocess.nms.boxes"));
  TRY(scores, reads(step.scores, "postprocess.nms.scores"));
  const Spec corners = model_outputs[boxes.index];
  const Spec values = spec_of(scores);
  TRY_VOID(check_floating(corners, "postprocess.nms.boxes"));
  TRY_VOID(check_floating(values, "postprocess.nms.scores"));
  const tensor::Shape& shape = corners.shape;
  if ((shape.size() != 2 && shape.size() != 3) || !fits_size(shape.back(), 4)) {
    return Error(Code::kInvalid,
                 "postprocess.nms.boxes: " + quoted(corners) + " is neither [n,4] nor [batch,n,4]");
  }
  const std::size_t rows = shape.size() - 1;
  bool fits = values.shape.size() == shape.size() || values.shape.size() == rows;
  for (std::size_t i = 0; fits && i < rows; ++i) fits = fits_size(values.shape[i], shape[i]);
  if (!fits) {
    return Error(Code::kInvalid,
                 "postprocess.nms.scores: " + quoted(values) + " does not fit " + quoted(corners) +
                     ": it must have one row of classes, or one number, for each box");
  }
  const std::int64_t classes = values.shape.size() == shape.size() ? values.shape.back() : 1;
  TRY_VOID(check_labels(values, classes, "postprocess.nms"));
  if (image && image->files()[0] > 1 && shape.size() == 2) {
    return Error(Code::kInvalid,
                 "postprocess.nms.boxes: " + quoted(corners) +
                     " has no batch dimension, but the model takes several images at a time");
  }
  const std::int64_t images = shape.size() == 3 ? shape[0] : 1;
  all.push_back({{std::string(kBoxes), DType::kFp32, {-1, 4}}, {Source::Kind::kBoxes, 0}});
  all.push_back({{std::string(kScores), DType::kFp32, {-1}}, {Source::Kind::kBoxScores, 0}});
  all.push_back({{std::string(kLabels), DType::kBytes, {-1}}, {Source::Kind::kBoxLabels, 0}});
  all.push_back({{std::string(kCounts), DType::kInt64, {images}}, {Source::Kind::kCounts, 0}});
  return {};
}

// Outputs that no step reads come first: these are the default of a request.
void Pipeline::Compiled::list_outputs() {
  const bool softmax_read = declaration.softmax && ((declaration.top_k && top_k.probabilities) ||
                                                    (declaration.nms && scores.probabilities));
  std::vector<bool> read(model_outputs.size());
  if (declaration.softmax) read[softmax.index] = true;
  if (declaration.top_k && !top_k.probabilities) read[top_k.index] = true;
  if (declaration.nms) read[boxes.index] = true;
  if (declaration.nms && !scores.probabilities) read[scores.index] = true;

  std::vector<Output> first, others;
  for (Output& result : all)
    (softmax_read && result.source.kind == Source::Kind::kProbabilities ? others : first)
        .push_back(result);
  const std::size_t results = all.size();
  for (std::size_t i = 0; i < model_outputs.size(); ++i) {
    const auto same = [&](const Output& result) {
      return result.spec.name == model_outputs[i].name;
    };
    if (std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(results), same))
      continue;  // as raw.NAME only
    (read[i] ? others : first).push_back({model_outputs[i], {Source::Kind::kModel, i}});
  }
  for (const Output& output : first) outputs.push_back(output.spec);
  first.insert(first.end(), others.begin(), others.end());
  all = std::move(first);
  for (const Output& output : all) available.push_back(output.spec);
}

const Output* Pipeline::Compiled::find(std::string_view name) const {
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const Output& output) { return output.spec.name == name; });
  return it == all.end() ? nullptr : &*it;
}

Result<Output> Pipeline::Compiled::resolve(std::string_view name) const {
  if (const Output* output = find(name)) return *output;
  if (name.substr(0, kRawPrefix.size()) == kRawPrefix) {
    for (std::size_t i = 0; i < model_outputs.size(); ++i) {
      if (model_outputs[i].name != name.substr(kRawPrefix.size())) continue;
      return Output{{std::string(name), model_outputs[i].dtype, model_outputs[i].shape},
                    {Source::Kind::kModel, i}};
    }
  }
  return Error(Code::kInvalid,
               "the model has no output \"" + std::string(name) + "\"; it has " + names(available));
}

Pipeline::Pipeline(std::unique_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

Result<Pipeline> Pipeline::compile(const Declaration& declaration, std::vector<Spec> inputs,
                                   std::vector<Spec> outputs, std::vector<std::string> labels,
                                   const Limits& limits) {
  auto made = std::make_unique<Compiled>();
  made->declaration = declaration;
  made->labels = std::move(labels);
  made->model_outputs = std::move(outputs);
  made->inputs = std::move(inputs);
  if (declaration.image) {
    TRY(made->image, ImageInput::bind(*declaration.image, made->inputs, limits));
    for (Spec& input : made->inputs) {
      if (input.name == made->image->target().name) {
        input = {std::string(kImageInput), DType::kBytes, made->image->files()};
      } else if (input.name == kImageInput) {
        return Error(Code::kInvalid,
                     "preprocess: the model already has an input called image; rename that input "
                     "when you export the model");
      }
    }
  }
  if (declaration.softmax) TRY_VOID(made->bind_softmax());
  if (declaration.top_k) TRY_VOID(made->bind_top_k());
  if (declaration.nms) TRY_VOID(made->bind_nms());
  made->list_outputs();
  return Pipeline(std::move(made));
}

bool Pipeline::empty() const { return compiled_->declaration.empty(); }
bool Pipeline::takes_images() const { return compiled_->image.has_value(); }
const std::vector<Spec>& Pipeline::inputs() const { return compiled_->inputs; }
const std::vector<Spec>& Pipeline::outputs() const { return compiled_->outputs; }
const std::vector<Spec>& Pipeline::available() const { return compiled_->available; }

Result<Prepared> Pipeline::before(std::vector<Named> inputs) const {
  Prepared out{std::move(inputs), {}};
  if (!takes_images()) return out;
  const auto is_image = [](const Named& input) {
    return input.name == kImageInput && input.tensor.dtype() == DType::kBytes;
  };
  const auto it = std::find_if(out.inputs.begin(), out.inputs.end(), is_image);
  if (it == out.inputs.end()) return out;
  const std::string& target = compiled_->image->target().name;
  for (const Named& input : out.inputs) {
    if (&input != &*it && input.name == target) {
      return Error(Code::kInvalid, "the request has both \"image\" and \"" + target +
                                       "\", which image replaces: send only one of them");
    }
  }
  if (it->tensor.shape().size() != 1) {
    return Error(Code::kInvalid, "input \"image\" takes shape " +
                                     tensor::to_string(compiled_->image->files()) + ", not " +
                                     tensor::to_string(it->tensor.shape()));
  }
  TRY(Tensor made, compiled_->image->make(it->tensor.strings(), out.images));
  *it = {target, std::move(made)};
  return out;
}

Result<std::vector<std::string>> Pipeline::needs(std::span<const std::string> wanted) const {
  const Compiled& c = *compiled_;
  std::vector<bool> needed(c.model_outputs.size());
  const auto add = [&](const Reads& reads) {
    needed[reads.probabilities ? c.softmax.index : reads.index] = true;
  };
  const auto add_source = [&](const Source& source) {
    switch (source.kind) {
      case Source::Kind::kModel:
        needed[source.index] = true;
        break;
      case Source::Kind::kProbabilities:
        add(c.softmax);
        break;
      case Source::Kind::kTopLabels:
      case Source::Kind::kTopScores:
        add(c.top_k);
        break;
      default:
        add(c.boxes);
        add(c.scores);
    }
  };
  if (wanted.empty()) {
    for (std::size_t i = 0; i < c.outputs.size(); ++i) add_source(c.all[i].source);
  }
  for (const std::string& name : wanted) {
    TRY(const Output output, c.resolve(name));
    add_source(output.source);
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (needed[i]) out.push_back(c.model_outputs[i].name);
  }
  return out;
}

Result<std::vector<Named>> Pipeline::after(const Prepared& prepared, const std::vector<Named>& raw,
                                           std::span<const std::string> wanted) const {
  const Compiled& c = *compiled_;
  std::pair<std::size_t, std::size_t> size = {1, 1};
  if (c.image) size = {c.image->width(), c.image->height()};
  Answer answer(c.declaration, c.labels, c.model_outputs, prepared, raw, size);
  const auto read = [&](const Reads& what) {
    return what.probabilities ? answer.probabilities(c.softmax.index)
                              : answer.model_output(what.index);
  };
  const auto ranked = [&]() -> Result<Answer::Ranked> {
    TRY(const Tensor in, read(c.top_k));
    return answer.ranked(in, c.top_k.probabilities ? c.model_outputs[c.softmax.index]
                                                   : c.model_outputs[c.top_k.index]);
  };
  const auto boxes = [&]() -> Result<Answer::Boxes> {
    TRY(const Tensor corners, read(c.boxes));
    TRY(const Tensor scores, read(c.scores));
    return answer.boxes(corners, scores);
  };
  const auto make = [&](const Source& source) -> Result<Tensor> {
    switch (source.kind) {
      case Source::Kind::kModel:
        return answer.model_output(source.index);
      case Source::Kind::kProbabilities:
        return answer.probabilities(c.softmax.index);
      case Source::Kind::kTopLabels: {
        TRY(Answer::Ranked out, ranked());
        return std::move(out.labels);
      }
      case Source::Kind::kTopScores: {
        TRY(Answer::Ranked out, ranked());
        return std::move(out.scores);
      }
      default:
        break;
    }
    TRY(Answer::Boxes out, boxes());
    return source.kind == Source::Kind::kBoxes       ? std::move(out.boxes)
           : source.kind == Source::Kind::kBoxScores ? std::move(out.scores)
           : source.kind == Source::Kind::kBoxLabels ? std::move(out.labels)
                                                     : std::move(out.counts);
  };
  std::vector<Named> out;
  if (wanted.empty()) {
    for (std::size_t i = 0; i < c.outputs.size(); ++i) {
      TRY(Tensor tensor, make(c.all[i].source));
      out.push_back({c.outputs[i].name, std::move(tensor)});
    }
  }
  for (const std::string& name : wanted) {
    TRY(const Output output, c.resolve(name));
    TRY(Tensor tensor, make(output.source));
    out.push_back({name, std::move(tensor)});
  }
  return out;
}

Result<std::vector<Named>> Pipeline::sample() const {
  std::vector<Named> out;
  if (!takes_images()) return out;
  const ImageInput& image = *compiled_->image;
  codec::Image black{image.width(), image.height(), 1, {}};
  black.pixels.resize(black.width * black.height);
  TRY(std::string png, codec::encode_png(black));
  const std::int64_t count = std::max<std::int64_t>(image.files()[0], 1);
  TRY(Tensor tensor,
      Tensor::of_strings({count}, std::vector<std::string>(static_cast<std::size_t>(count), png)));
  out.push_back({std::string(kImageInput), std::move(tensor)});
  return out;
}

}  // namespace varda::transform
