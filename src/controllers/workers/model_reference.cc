#include "controllers/workers/model_reference.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "controllers/replication/replication.h"
#include "hosting/chosen_model.h"
#include "hosting/held_versions.h"

namespace varda::controllers::workers {

namespace {

// Frameworks that varda-serve loads.
constexpr std::string_view kServedFrameworks[] = {"onnx", "pb", "caffe", "darknet"};
constexpr std::size_t kPathShown = 63;

bool is_served(std::string_view framework) {
  return std::find(std::begin(kServedFrameworks), std::end(kServedFrameworks), framework) !=
         std::end(kServedFrameworks);
}

ModelResolution unresolved(std::string reason, std::string message) {
  return {{}, hosting::Problem{std::move(reason), std::move(message)}};
}

bool has_parent_component(const std::string& path) {
  return (path + '/').find("/../") != std::string::npos;
}

ModelResolution of_model(const hosting::AnyModel& model, ModelUse use,
                         const hosting::ModelKeys* keys) {
  const api::ModelSpec& spec = *model.spec;
  ResolvedModel out;
  out.name = out.model_name = model.metadata->name;
  out.kind = api::ModelReference::kModel;
  out.framework = hosting::framework_of_file(spec);
  if (out.framework.empty()) out.framework = spec.format;
  out.url = spec.url;
  // A user's worker gets the URL of a file without spec.sha256, even if a server pinned the file.
  const bool needs_files = use != ModelUse::kUsersWorker;
  out.version =
      hosting::version_of(spec, needs_files ? api::known_sha256(spec, *model.status) : spec.sha256);
  const std::string subject = "Model " + out.name;
  if (use == ModelUse::kServer && !spec.format.empty() && !is_served(out.framework)) {
    return unresolved("ModelUnsupported", subject + " has the format " + spec.format +
                                              ": varda-serve supports onnx, pb, caffe and darknet; "
                                              "set the worker's template for other formats");
  }
  if (needs_files || !spec.sha256.empty()) {
    hosting::ModelArchive found = hosting::archive_of(model, keys);
    if (found.problem) return {{}, std::move(found.problem)};
    out.archives.push_back(std::move(*found.archive));
    out.signature = spec.signature;
    return {std::move(out), {}};
  }
  if (const auto wrong = hosting::no_version_name(out.version))
    return unresolved("ModelUnsupported", subject + " has " + *wrong);
  const std::optional<std::string> path = replication::local_path(spec.url);
  if (path && has_parent_component(*path))
    return unresolved("ModelUnsupported",
                      subject + " has a path with \"..\": " + path->substr(0, kPathShown));
  out.path = path.value_or("");
  return {std::move(out), {}};
}

ModelResolution of_inference_model(const api::InferenceModel& referred, ModelUse use,
                                   const hosting::ModelKeys* list) {
  const std::string subject = "InferenceModel " + referred.metadata.name;
  if (hosting::awaits_choice(referred))
    return unresolved("ModelNotFound", subject + " has found no Model for its modelRef yet");
  // The InferenceModel's controller checked the signature under the Model's name when it chose the
  // Model.
  const hosting::ModelKeys* const keys = referred.spec.model_ref ? nullptr : list;
  const api::InferenceModel model = hosting::with_manifest(referred);
  const api::InferenceModelSpec& spec = model.spec;
  if (spec.from_image())
    return unresolved("ModelUnsupported",
                      subject + " is served from an image, so it has no files for a worker");
  if (use == ModelUse::kServer && !is_served(spec.framework_type)) {
    return unresolved("ModelUnsupported", subject + " has the frameworkType " +
                                              spec.framework_type +
                                              ": varda-serve supports onnx, pb, caffe and darknet; "
                                              "set the worker's template for other formats");
  }
  const api::ManifestEntry* entry = spec.find_version(spec.target_version);
  if (entry == nullptr)
    return unresolved("ModelNotFound",
                      subject + " has no version " + spec.target_version + " in its manifest");
  for (const api::ManifestEntry& one : spec.manifest) {
    const auto wrong = hosting::no_version_name(one.version);
    if (wrong) return unresolved("ModelUnsupported", subject + " has " + *wrong);
    if (const auto long_url = hosting::no_fetched_url(one.download_url))
      return unresolved("ModelUnsupported", subject + " has " + *long_url);
  }
  if (auto refusal = hosting::signature_problem(model, *entry, keys))
    return unresolved(std::move(refusal->reason), subject + ": " + refusal->message);
  ResolvedModel out;
  out.name = model.metadata.name;
  out.kind = api::ModelReference::kInferenceModel;
  out.model_name = spec.model_name;
  out.framework = spec.framework_type;
  out.version = spec.target_version;
  out.url = entry->download_url;
  out.signature = entry->signature;
  out.archives = hosting::archives_of(model, keys);
  return {std::move(out), {}};
}

}  // namespace

const api::EdgeModelVersion* ResolvedModel::archive() const {
  const auto found = std::find_if(archives.begin(), archives.end(),
                                  [this](const auto& one) { return one.version == version; });
  return found == archives.end() ? nullptr : &*found;
}

ModelResolution resolve_model(const api::ModelReference& reference, const ModelWorld& world,
                              ModelUse use) {
  const bool may_be_model = reference.kind != api::ModelReference::kInferenceModel;
  if (may_be_model) {
    hosting::FoundModel found = hosting::find_model(world.models, reference.group);
    if (found.problem) return {{}, std::move(found.problem)};
    if (found.model) return of_model(*found.model, use, world.keys.get());
  }
  // The group is about Models.
  const bool may_be_inference_model = reference.kind == api::ModelReference::kInferenceModel ||
                                      (reference.kind.empty() && reference.group.empty());
  if (may_be_inference_model && world.inference_model != nullptr)
    return of_inference_model(*world.inference_model, use, world.keys.get());
  const std::string model = reference.group.empty() ? "Model" : "Model (" + reference.group + ")";
  const std::string kinds = !may_be_model             ? "InferenceModel"
                            : !may_be_inference_model ? model
                                                      : model + " and no InferenceModel";
  return unresolved("ModelNotFound", "there is no " + kinds + " " + reference.name);
}

}  // namespace varda::controllers::workers
