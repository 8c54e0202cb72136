#include "controllers/workers/model_reference.h"

#include <algorithm>
#include <utility>

#include "controllers/replication/replication.h"
#include "hosting/held_versions.h"

namespace varda::controllers::workers {

namespace {

constexpr std::string_view kServedFramework = "onnx";
// Enough digits to distinguish versions of one model; valid for directories and labels.
constexpr std::size_t kVersionDigits = 12;
// Limits of EdgeNode.spec.models.
constexpr std::size_t kFetchedUrlMax = 2048;
constexpr std::size_t kVersionMax = 63;

ModelResolution unresolved(std::string reason, std::string message) {
  return {{}, hosting::Problem{std::move(reason), std::move(message)}};
}

// A version names a directory on nodes and in containers. The API server checks new objects by the
// current schema; this function checks older ones.
bool is_version_name(std::string_view version) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !version.empty() && version.size() <= kVersionMax && version.front() != '.' &&
         version != "target" && std::all_of(version.begin(), version.end(), is_allowed);
}

std::string quoted(const std::string& version) {
  return '"' + version.substr(0, kVersionMax) + '"';
}

std::optional<std::string> no_version_name(const std::string& version) {
  if (is_version_name(version)) return {};
  return "the version " + quoted(version) +
         ": it must be 1 to 63 letters, digits, '.', '_' or '-', not begin with '.', and not be "
         "\"target\"";
}

std::optional<std::string> no_fetched_url(const std::string& url) {
  if (url.size() <= kFetchedUrlMax) return {};
  return "a url of " + std::to_string(url.size()) + " characters: must be no more than " +
         std::to_string(kFetchedUrlMax) + " characters";
}

bool has_parent_component(const std::string& path) {
  return (path + '/').find("/../") != std::string::npos;
}

ModelResolution of_model(const api::SednaModel& model, ModelUse use) {
  const api::ModelSpec& spec = model.spec;
  ResolvedModel out;
  out.name = out.model_name = model.metadata.name;
  out.kind = api::ModelReference::kModel;
  out.framework = spec.format;
  out.url = spec.url;
  const std::string subject = "Model " + out.name;
  if (use == ModelUse::kServer && !spec.format.empty() && spec.format != kServedFramework) {
    return unresolved(
        "ModelUnsupported",
        subject + " has the format " + spec.format +
            ": varda-serve supports onnx only; set the worker's template for other formats");
  }
  // Nodes and servers distinguish archives by version: another archive needs another name.
  // A user's worker gets the URL of a file without spec.sha256, even if a server pinned the file.
  const std::string& sha256 = use == ModelUse::kServer ? model.sha256() : spec.sha256;
  out.version = !spec.version.empty() ? spec.version
                : sha256.empty()      ? "1"
                                      : sha256.substr(0, kVersionDigits);
  if (const auto wrong = no_version_name(out.version))
    return unresolved("ModelUnsupported", subject + " has " + *wrong);
  if (!sha256.empty()) {
    if (const auto wrong = no_fetched_url(spec.url))
      return unresolved("ModelUnsupported", subject + " has " + *wrong);
    api::EdgeModelVersion& archive = out.archives.emplace_back();
    archive.version = out.version;
    archive.url = spec.url;
    archive.sha256 = sha256;
    if (!spec.credential_name.empty())
      archive.credentials = model.metadata.ns + "/" + spec.credential_name;
    return {std::move(out), {}};
  }
  const std::optional<std::string> path = replication::local_path(spec.url);
  if (use == ModelUse::kServer) {
    if (path)
      return unresolved(
          "ModelUnsupported",
          subject + " has a path as url: varda-serve needs the url and sha256 of an archive");
    const meta::Condition* const pinned = meta::find_condition(model.status.conditions, "Pinned");
    return unresolved(
        "DigestMissing",
        subject + (pinned != nullptr ? ": " + pinned->message
                                     : " has no sha256, which verifies the download; `varda pack` "
                                       "prints the digest"));
  }
  if (path && has_parent_component(*path))
    return unresolved("ModelUnsupported",
                      subject + " has a path with \"..\": " + path->substr(0, kVersionMax));
  out.path = path.value_or("");
  return {std::move(out), {}};
}

ModelResolution of_inference_model(const api::InferenceModel& model, ModelUse use) {
  const api::InferenceModelSpec& spec = model.spec;
  const std::string subject = "InferenceModel " + model.metadata.name;
  if (spec.from_image())
    return unresolved("ModelUnsupported",
                      subject + " is served from an image, so it has no files for a worker");
  if (use == ModelUse::kServer && spec.framework_type != kServedFramework) {
    return unresolved(
        "ModelUnsupported",
        subject + " has the frameworkType " + spec.framework_type +
            ": varda-serve supports onnx only; set the worker's template for other formats");
  }
  const api::ManifestEntry* entry = spec.find_version(spec.target_version);
  if (entry == nullptr)
    return unresolved("ModelNotFound",
                      subject + " has no version " + spec.target_version + " in its manifest");
  for (const api::ManifestEntry& one : spec.manifest) {
    const auto wrong = no_version_name(one.version);
    if (wrong) return unresolved("ModelUnsupported", subject + " has " + *wrong);
    if (const auto long_url = no_fetched_url(one.download_url))
      return unresolved("ModelUnsupported", subject + " has " + *long_url);
  }
  ResolvedModel out;
  out.name = model.metadata.name;
  out.kind = api::ModelReference::kInferenceModel;
  out.model_name = spec.model_name;
  out.framework = spec.framework_type;
  out.version = spec.target_version;
  out.url = entry->download_url;
  out.archives = hosting::archives_of(model);
  out.serving_url = model.status.url;
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
  if (reference.kind != api::ModelReference::kInferenceModel && world.model != nullptr)
    return of_model(*world.model, use);
  if (reference.kind != api::ModelReference::kModel && world.inference_model != nullptr)
    return of_inference_model(*world.inference_model, use);
  const std::string kinds =
      reference.kind == api::ModelReference::kInferenceModel ? "InferenceModel"
      : reference.kind == api::ModelReference::kModel        ? "Model (sedna.io)"
                                                      : "Model (sedna.io) and no InferenceModel";
  return unresolved("ModelNotFound", "there is no " + kinds + " " + reference.name);
}

}  // namespace varda::controllers::workers
