// What a worker's model is: a reference resolved to archives, a version and addresses. Pure; shared by all kinds of jobs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "api/sedna/worker.h"
#include "controllers/inferencemodel/placement.h"

namespace varda::controllers {

/// Both objects of the reference's name in its namespace, as the caches hold them; null: there is none.
struct ModelWorld {
  std::shared_ptr<const api::SednaModel> model;
  std::shared_ptr<const api::InferenceModel> inference_model;
};

struct ResolvedModel {
  std::string name;  // of the reference
  std::string kind;  // Model, InferenceModel
  /// What servers call it: of a Model its name, of an InferenceModel spec.modelName. A kind that serves it under another name sets
  /// that.
  std::string model_name;
  std::string framework;  // as frameworkType has it ("onnx"), of a Model its format; "" not told
  /// The one that is meant. Of a Model that names none the beginning of its digest, since another archive is another version; "1"
  /// where it has no digest either.
  std::string version;
  std::string url;  // of that version, as the object has it
  /// What nodes are told to have on their disks, `version` among them. Empty: nobody fetches it (no digest, or a path).
  std::vector<api::EdgeModelVersion> archives;
  std::string path;         // its url is a path, of which no agent knows; nothing is mounted for it. "" it is none
  std::string serving_url;  // where an InferenceModel answers now; "" it does not, or is a Model

  bool fetched() const { return !archives.empty(); }
  const api::EdgeModelVersion* archive() const;  // of `version`; null: none
};

/// What the model is for. Our server needs files and loads only some formats; a user's worker makes of a URL what it likes.
enum class ModelUse { kUsersWorker, kServer };

/// Exactly one of both. Problems: ModelNotFound; DigestMissing (a URL to fetch without sha256, for our server); ModelUnsupported (a
/// model without files, or for our server one of another format than onnx, or one whose Model names a path).
struct ModelResolution {
  std::optional<ResolvedModel> model;
  std::optional<Problem> problem;
};
ModelResolution resolve_model(const api::ModelReference& reference, const ModelWorld& world, ModelUse use);

}  // namespace varda::controllers
