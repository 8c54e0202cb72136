#include "hosting/chosen_model.h"

#include <utility>

namespace varda::hosting {

bool awaits_choice(const api::InferenceModel& model) {
  return model.spec.model_ref && !model.status.model_ref;
}

const std::vector<api::ManifestEntry>& manifest_of(const api::InferenceModel& model) {
  return model.spec.model_ref && model.status.model_ref ? model.status.model_ref->versions
                                                        : model.spec.manifest;
}

const std::string& framework_of(const api::InferenceModel& model) {
  return model.spec.model_ref && model.spec.framework_type.empty() && model.status.model_ref
             ? model.status.model_ref->framework_type
             : model.spec.framework_type;
}

api::InferenceModel with_manifest(api::InferenceModel model) {
  if (!model.spec.model_ref) return model;
  if (model.status.model_ref) {
    model.spec.framework_type = framework_of(model);
    model.spec.manifest = model.status.model_ref->versions;
    model.spec.target_version = model.status.model_ref->version;
  }
  model.spec.model_ref.reset();
  return model;
}

api::ManifestEntry entry_of(const api::EdgeModelVersion& archive) {
  api::ManifestEntry entry;
  entry.version = archive.version;
  entry.download_url = archive.url;
  entry.sha256sum = archive.sha256;
  entry.mirrors = archive.mirrors;
  if (!archive.credentials.empty())  // NAMESPACE/NAME
    entry.credentials.emplace().secret_name =
        archive.credentials.substr(archive.credentials.find('/') + 1);
  return entry;
}

}  // namespace varda::hosting
