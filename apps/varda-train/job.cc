#include "job.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "os/readable_tree.h"
#include "samples/samples.h"
#include "tensor/tensor.h"

namespace varda::trainapp {
namespace {

using Data = std::shared_ptr<const samples::Dataset>;

constexpr const char* kEngine = "onnxruntime";

/// The part of a model's interface that the data must fit.
struct Interface {
  tensor::Spec input;
  std::string output;       // the name
  std::int64_t values = 0;  // of the output for each sample; -1: unknown
};

Result<Interface> interface_of(infer::Engine& engine, const ModelSource& source) {
  const std::string file = source.file.string();
  auto model = engine.load({.directory = source.file.parent_path(), .model = source.bytes});
  if (!model.ok()) return std::move(model).error().context(file);
  const std::vector<tensor::Spec>& inputs = (*model)->inputs();
  const std::vector<tensor::Spec>& outputs = (*model)->outputs();
  if (inputs.size() != 1)
    return Error(Code::kUnsupported,
                 file + " has " + std::to_string(inputs.size()) + " inputs (" +
                     join(inputs, ", ", [](const auto& one) { return one.name; }) +
                     "): models with one input can be trained");
  if (outputs.empty()) return Error(Code::kUnsupported, file + " has no output");
  Interface out{.input = inputs[0], .output = outputs[0].name};
  const tensor::Shape& shape = outputs[0].shape;
  out.values = shape.empty() ? 1 : shape.size() == 1 ? 1 : shape.back();
  return out;
}

Result<std::unique_ptr<os::ReadableTree>> tree_of(const Job& job, const os::Path& data) {
  if (!job.confine_data) return os::open_readable_tree({"/"});
  std::error_code error;
  const bool directory = std::filesystem::is_directory(data, error);
  return os::open_readable_tree({directory ? data : data.parent_path()});
}

Result<Data> open_data(const Context& ctx, os::ReadableTree& tree, const DataSource& source,
                       samples::Options options) {
  options.format = source.format;
  return samples::Dataset::open(ctx, tree, source.path, std::move(options));
}

/// Whether all names are numbers below `classes`: a file of samples may lack some of them.
bool are_indexes(const std::vector<std::string>& names, std::int64_t classes) {
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const auto number = parse_integer<std::int64_t>(name);
    return number && *number >= 0 && *number < classes;
  });
}

std::vector<std::string> indexes(std::int64_t classes) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < classes; ++i) out.push_back(std::to_string(i));
  return out;
}

Error misfit(const Job& job, const Interface& model, std::int64_t have) {
  const std::string data = job.data.path.string() + " has " + std::to_string(have);
  if (job.settings.task == samples::Task::kRegression)
    return Error(Code::kInvalid, data + " target values a sample, but output \"" + model.output +
                                     "\" of the model has " + std::to_string(model.values));
  if (job.settings.head_classes)
    return Error(Code::kInvalid, data + " classes, but " + job.classes_setting + " is " +
                                     std::to_string(*job.settings.head_classes));
  return Error(Code::kInvalid, data + " classes, but output \"" + model.output +
                                   "\" of the model has " + std::to_string(model.values) + ": " +
                                   job.classes_setting + " " + std::to_string(have) +
                                   " replaces the last layer");
}

/// Appends the classes of the data that the model lacks. A streaming last layer learns them.
Status add_new_classes(const Context& ctx, const Job& job, os::ReadableTree& tree,
                       samples::Options& options) {
  samples::Options any = options;
  any.classes.clear();
  TRY(const Data data, open_data(ctx, tree, job.data, any));
  for (const std::string& name : data->classes())
    if (std::ranges::find(options.classes, name) == options.classes.end())
      options.classes.push_back(name);
  return {};
}

/// Opens the training data with the classes in the order of the model's outputs.
Result<Data> open_train(const Context& ctx, const Job& job, os::ReadableTree& tree,
                        const ModelSource& source, const Interface& model,
                        samples::Options& options) {
  const bool regression = job.settings.task == samples::Task::kRegression;
  // One value can stand for two classes.
  const bool binary = job.settings.task == samples::Task::kClassification && model.values == 1;
  const std::int64_t wanted = job.settings.head_classes.value_or(binary ? 2 : model.values);
  const auto labels = static_cast<std::int64_t>(source.labels.size());
  if (!regression && labels > 0 && (labels == wanted || wanted < 0))
    options.classes = source.labels;
  if (job.settings.continual.slda && !options.classes.empty()) {
    TRY_VOID(add_new_classes(ctx, job, tree, options));
  }
  TRY(Data data, open_data(ctx, tree, job.data, options));
  auto have = static_cast<std::int64_t>(data->outputs());
  if (!regression && wanted > 0 && have < wanted && are_indexes(data->classes(), wanted)) {
    options.classes = indexes(wanted);
    TRY(data, open_data(ctx, tree, job.data, options));
    have = static_cast<std::int64_t>(data->outputs());
  }
  const bool grows = job.settings.continual.slda && have > wanted;
  if (wanted > 0 && have != wanted && !grows) return misfit(job, model, have);
  // The evaluation must read the same columns and classes, and fill the same values.
  options.classes = data->classes();
  options.features = data->features();
  options.fill = data->fill();
  return data;
}

}  // namespace

bool is_wrong_input(const Error& error) {
  return error.terminal() || error.code() == Code::kNotFound || error.code() == Code::kForbidden ||
         error.code() == Code::kCorrupt;
}

Result<Opened> open(const Context& ctx, const Job& job, const ModelSource& source,
                    infer::Engines& engines) {
  Opened out;
  TRY(out.engine, engines.get(kEngine));
  TRY(const Interface model, interface_of(*out.engine, source));
  samples::Options options{.task = job.settings.task,
                           .label = job.settings.label_column,
                           .features = job.settings.feature_columns,
                           .preprocess = source.preprocess,
                           .input = model.input};
  TRY(out.tree, tree_of(job, job.data.path));
  TRY(out.data, open_train(ctx, job, *out.tree, source, model, options));
  if (job.evaluation) {
    TRY(out.evaluation_tree, tree_of(job, job.evaluation->path));
    TRY(out.evaluation, open_data(ctx, *out.evaluation_tree, *job.evaluation, options));
  }
  if (job.old) {
    TRY(out.old_tree, tree_of(job, job.old->path));
    TRY(out.old, open_data(ctx, *out.old_tree, *job.old, options));
  }
  return out;
}

Result<Opened> open_places(const Context& ctx, const Job& job) {
  Opened out;
  TRY(out.tree, tree_of(job, job.data.path));
  samples::Options options{.task = job.settings.task,
                           .label = job.settings.label_column,
                           .features = job.settings.feature_columns};
  // No sample is read, so only the rank of the input counts: rows of numbers, or pictures.
  options.input = {"input", tensor::DType::kFp32, {-1, -1}};
  auto numbers = open_data(ctx, *out.tree, job.data, options);
  if (numbers.ok()) {
    out.data = std::move(*numbers);
    return out;
  }
  options.input.shape = {-1, 3, 8, 8};
  auto pictures = open_data(ctx, *out.tree, job.data, options);
  if (!pictures.ok()) return numbers.error();
  out.data = std::move(*pictures);
  return out;
}

Result<Trained> train(const Context& ctx, const Job& job, infer::Engines& engines,
                      os::FileSystem& fs, training::Observer& observer) {
  Trained out;
  TRY(out.source, read_model(fs, job.model));
  TRY(const Opened opened, open(ctx, job, out.source, engines));
  out.engine = opened.engine->name() + " " + opened.engine->library_version();
  TRY(out.outcome, training::run(ctx, *opened.engine, fs,
                                 {.model = out.source.bytes,
                                  .train = opened.data,
                                  .evaluation = opened.evaluation,
                                  .old = opened.old,
                                  .hold_out = job.hold_out,
                                  .settings = job.settings,
                                  .directory = job.directory,
                                  .checkpoint_every = job.checkpoint_every},
                                 observer));
  TRY_VOID(write_beside(fs, job.directory, out.source, out.outcome.classes));
  TRY(out.digest, digest_of_file(fs, out.outcome.model));
  return out;
}

}  // namespace varda::trainapp
