// Resolves a worker's model reference to archives, a version and addresses. Pure; shared by all
// kinds of jobs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/ai/inference_model.h"
#include "api/edgeai/edge_node.h"
#include "api/sedna/worker.h"
#include "hosting/model_archive.h"
#include "hosting/model_keys.h"
#include "hosting/placement.h"

namespace varda::controllers::workers {

/// The objects with the reference's name and namespace, as cached.
struct ModelWorld {
  hosting::AnyModels models;
  std::shared_ptr<const api::InferenceModel> inference_model;  // null: missing
  std::shared_ptr<const hosting::ModelKeys> keys = nullptr;    // null: signatures are not checked
};

struct ResolvedModel {
  std::string name;  // of the reference
  std::string kind;  // Model, InferenceModel
  /// The model's name at servers: the name of a Model, or spec.modelName of an InferenceModel. A
  /// kind that serves the model under another name replaces this.
  std::string model_name;
  std::string framework;  // as in frameworkType ("onnx"), by a Model's format; "" unknown
  /// The wanted version. A Model without a version uses the start of its digest, since another
  /// archive is another version; "1" if it has no digest either.
  std::string version;
  std::string url;  // of that version, as in the object
  /// Archives that nodes keep on disk, including `version`. Empty: no agent fetches the model (no
  /// digest, or a path).
  std::vector<api::EdgeModelVersion> archives;
  std::string signature;  // of `version`, as in the object; "": none
  std::string path;       // set if the url is a path, which is not mounted; else ""

  bool fetched() const { return !archives.empty(); }
  const api::EdgeModelVersion* archive() const;  // of `version`, or null
};

/// Purpose of the model. Our server needs files and loads only some formats. A server of the
/// operator's table needs files of any format. A user's worker handles the URL itself.
enum class ModelUse { kUsersWorker, kServer, kAnyServer };

/// Exactly one member is set. Problems: ModelNotFound; ModelAmbiguous (both groups have the name);
/// DigestMissing (a server needs sha256 for a URL); SignatureRefused (of an archive that Varda
/// fetches); ModelUnsupported. ModelUnsupported means a model without files; for our server also a
/// format other than onnx, or a Model with a path.
struct ModelResolution {
  std::optional<ResolvedModel> model;
  std::optional<hosting::Problem> problem;
};
ModelResolution resolve_model(const api::ModelReference& reference, const ModelWorld& world,
                              ModelUse use);

}  // namespace varda::controllers::workers
