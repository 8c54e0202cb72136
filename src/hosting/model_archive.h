// Models of both groups as archives to serve. Pure, except named_models(), which reads caches;
// shared by the kinds that serve Models.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "hosting/model_keys.h"
#include "hosting/placement.h"
#include "meta/object.h"
#include "runtime/controller.h"

namespace varda::hosting {

/// A Model of either group, as cached. The members share the ownership of the object.
struct AnyModel {
  std::string group;
  std::shared_ptr<const meta::ObjectMeta> metadata;
  std::shared_ptr<const api::ModelSpec> spec;
  std::shared_ptr<const api::ModelMetricsStatus> status;
};
using AnyModels = std::vector<AnyModel>;

/// Requires a model.
template <api::Group G>
AnyModel any_model(const std::shared_ptr<const api::ModelOf<G>>& model) {
  return {api::ModelOf<G>::resource().group,
          {model, &model->metadata},
          {model, &model->spec},
          {model, &model->status}};
}

/// The Models with this key, of both groups: at most two. Models being deleted do not count.
AnyModels named_models(const meta::ObjectKey& key, const runtime::Caches& caches);

/// At most one member is set; none: no Model has the group.
struct FoundModel {
  std::optional<AnyModel> model;
  std::optional<Problem> problem;  // ModelAmbiguous
};
/// Selects from Models of one name. `group` "": any.
FoundModel find_model(const AnyModels& named, std::string_view group);

/// spec.version, else the start of the digest, since another archive is another version; "1" if the
/// digest is unknown, too.
std::string version_of(const api::ModelSpec& spec, std::string_view sha256);

/// The reason why nodes cannot have a version with this name, or fetch this URL: "the version …:
/// it must be …". The API server checks new objects by the current schema; these functions check
/// older ones.
std::optional<std::string> no_version_name(const std::string& version);
std::optional<std::string> no_fetched_url(const std::string& url);

/// The URL with which nodes fetch the file of a Model: a path becomes a file URL.
std::string fetched_url(const std::string& url);

/// Exactly one member is set.
struct ModelArchive {
  std::optional<api::EdgeModelVersion> archive;
  std::optional<Problem> problem;  // DigestMissing, ModelUnsupported, SignatureRefused
};
/// A path as URL becomes a file URL. `keys` null: signatures are not checked. Else a key signed the
/// version under metadata.name.
ModelArchive archive_of(const AnyModel& model, const ModelKeys* keys);

/// The frameworkType of a Model's format, or without a format of the suffix in its URL: "pt" is
/// pytorch. "": neither decides.
std::string framework_of_file(const api::ModelSpec& spec);

}  // namespace varda::hosting
